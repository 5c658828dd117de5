// @platformatic/kafka: an idempotent producer has one request in flight.

import { readFileSync } from 'node:fs'
import { compatibilityPartitioner, ProduceAcks, Producer } from '@platformatic/kafka'

const manifest = new URL('../package.json', import.meta.resolve('@platformatic/kafka'))
const { version: released } = JSON.parse(readFileSync(manifest))

export const version = `@platformatic/kafka ${released}`

// Return the headers of a message: strings would need a serializer.
export const headers = pairs => new Map(pairs.map(([name, value]) => [Buffer.from(name), value]))

export async function connect({ servers, acks, compression }) {
  const idempotent = acks === 'all'
  const producer = new Producer({
    clientId: 'benchmark',
    bootstrapBrokers: servers,
    idempotent,
    acks: idempotent ? ProduceAcks.ALL : Number(acks),
    maxInflights: 5,
    compression,
  })
  const metadata = topic => producer.metadata({ topics: [topic] })
  return {
    partitions: async topic => (await metadata(topic)).topics.get(topic).partitionsCount,
    // The default partitioner differs from Java's. It is for messages with keys only.
    send: (topic, messages) =>
      producer.send({
        messages,
        ...(messages[0].key && { partitioner: compatibilityPartitioner }),
      }),
    close: () => producer.close(),
  }
}
