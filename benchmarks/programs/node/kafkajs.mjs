// kafkajs: the requests of an idempotent producer wait for each other.

import { createRequire } from 'node:module'
import kafkajs from 'kafkajs'

const { Kafka, CompressionTypes, Partitioners, logLevel } = kafkajs
const { version: released } = createRequire(import.meta.url)('kafkajs/package.json')

export const version = `kafkajs ${released}`

// Return the headers of a message.
export const headers = Object.fromEntries

export async function connect({ servers, acks, compression }) {
  const kafka = new Kafka({ brokers: servers, logLevel: logLevel.NOTHING })
  const idempotent = acks === 'all'
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent,
    maxInFlightRequests: 5,
  })
  const admin = kafka.admin()
  await Promise.all([producer.connect(), admin.connect()])
  const options = {
    acks: idempotent ? -1 : Number(acks),
    compression: { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[compression],
  }
  return {
    async partitions(topic) {
      return (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
    },
    send: (topic, messages) => producer.send({ topic, messages, ...options }),
    close: () => Promise.all([producer.disconnect(), admin.disconnect()]),
  }
}
