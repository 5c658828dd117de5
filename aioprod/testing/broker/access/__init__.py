"""Authorization: the authorizer, the client of a request, and the required permissions of each
API.
"""
