-- Posts one body and prints the result as a line, for benchmarks/webapp.py.

function init(arguments)
   wrk.method = "POST"
   wrk.body = arguments[1]
   wrk.headers["Content-Type"] = "application/octet-stream"
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      "result\t%d\t%d\t%d\t%f\t%f\n",
      summary.requests,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      summary.duration,
      latency:percentile(50),
      latency:percentile(99)
   ))
end
