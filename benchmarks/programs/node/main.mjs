// Sends records with a JavaScript client, for benchmarks/adapters/foreign.py;
// benchmarks/programs/README.md describes the lines on standard input and output.
// Its argument is the module of the client.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const IN_FLIGHT = 5
const RECORD_OVERHEAD_BYTES = 10

const client = await import(`./${process.argv[2]}.mjs`)
const filesRead = new Map()
let producer
let settings

// Return the lines of a file as buffers, read once; none if there is no path.
function lines(path) {
  if (path === '') return []
  if (!filesRead.has(path)) {
    const text = readFileSync(path, 'latin1')
    filesRead.set(path, text.split('\n').map(line => Buffer.from(line, 'latin1')))
  }
  return filesRead.get(path)
}

// Return the number of records in a list: neither client has linger or batches, and each list
// becomes a batch for each partition.
function recordsPerList(values, keys, partitions) {
  const size = values[0].length + (keys[0]?.length ?? 0) + RECORD_OVERHEAD_BYTES
  return Math.max(1, Math.floor(settings.batchSize / size)) * partitions
}

async function send(topic, records, values, keys, headerCount) {
  const perList = recordsPerList(values, keys, await producer.partitions(topic))
  const headers = client.headers(
    Array.from({ length: headerCount }, (_, number) => [
      `header-${number}`,
      Buffer.from(`value of ${number}`),
    ])
  )
  const inFlight = new Set()
  let sent = 0
  let delivered = 0
  let key = 0
  let value = 0
  let failure
  const wall = process.hrtime.bigint()
  const cpu = process.cpuUsage() // of all threads
  while (sent < records && failure === undefined) {
    const messages = []
    for (const last = Math.min(records, sent + perList); sent < last; sent++) {
      const message = { topic, value: values[value] }
      if (++value === values.length) value = 0
      if (keys.length) {
        message.key = keys[key]
        if (++key === keys.length) key = 0
      }
      if (headerCount) message.headers = headers
      messages.push(message)
    }
    const sending = producer.send(topic, messages)
      .then(() => { delivered += messages.length }, error => { failure = error })
      .finally(() => inFlight.delete(sending))
    inFlight.add(sending)
    if (inFlight.size === IN_FLIGHT) await Promise.race(inFlight)
  }
  await Promise.all(inFlight)
  const used = process.cpuUsage(cpu)
  const wallS = Number(process.hrtime.bigint() - wall) / 1e9
  if (failure !== undefined || delivered !== records) {
    throw new Error(`${delivered} of ${records} records were delivered; last error: ${failure}`)
  }
  return `sent\t${records}\t${(used.user + used.system) / 1e6}\t${wallS}`
}

async function handle([request, ...words]) {
  switch (request) {
    case 'start': {
      const [servers, acks, , batchSize, compression] = words
      settings = { servers: servers.split(','), acks, batchSize: Number(batchSize), compression }
      producer = await client.connect(settings)
      return 'started'
    }
    case 'send':
      return send(words[0], Number(words[1]), lines(words[2]), lines(words[3]), Number(words[4]))
    case 'stop':
      await producer.close()
      return 'stopped'
    default:
      throw new Error(`unknown request ${request}`)
  }
}

console.log(`${client.version}, Node.js ${process.versions.node}`)
for await (const line of createInterface({ input: process.stdin })) {
  let response
  try {
    response = await handle(line.split('\t'))
  } catch (error) {
    response = `failed\t${String(error).replaceAll('\n', ' ')}`
  }
  console.log(response)
}
process.exit(0)
