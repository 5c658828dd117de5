"""Transactions: their coordinator, and how writes become part of them."""
