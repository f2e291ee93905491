/** Messages: send, take back, send again, stop. */
import type { z } from 'zod'
import type { SendItem, SendResult } from '../index.ts'
import { Refusal, toRefusal } from './refusal.ts'
import { type Call, json, nothing, route, type Route } from './route.ts'
import * as schemas from './schemas.ts'

type Message = z.infer<typeof schemas.message>

const KEY = 'idempotency-key'

const send = route({
  method: 'post',
  path: '/v1/sessions/{id}/messages',
  name: 'sendMessages',
  summary: 'Accept a message, or several at once, each decided on its own; the session need not exist.',
  right: 'produce',
  headers: {
    [KEY]:
      'Makes the request repeatable: the same key in the same session is one message. 1 to 200 printable characters.',
  },
  body: schemas.messages,
  answers: {
    202: {
      description: 'Accepted: kept, and run in its turn. A list for a list.',
      schema: schemas.accepted.or(schemas.results),
    },
    207: { description: 'Of a list, some were refused: each has its own answer.', schema: schemas.results },
  },
  refusals: [409, 413, 415, 422, 429],
  handle: (call) => (Array.isArray(call.body) ? sendList(call, call.body) : sendOne(call, call.body)),
})

async function sendOne(call: Call<unknown, unknown>, message: Message): Promise<Response> {
  const { session, request, service } = call
  if (message.key !== undefined)
    throw new Refusal(400, 'INVALID_ARGUMENT', `A single message has its key in the header Idempotency-Key.`)
  const key = request.headers.get(KEY) ?? undefined
  const { message: input, ...options } = itemOf(session, message, key, request)
  const { seq, id, duplicate, position } = await service.client.enqueue(session, input, withoutId(options))
  return json({ session, seq, id, duplicate, position }, 202)
}

async function sendList(call: Call<unknown, unknown>, messages: readonly Message[]): Promise<Response> {
  const { session, request, service } = call
  if (request.headers.has(KEY))
    throw new Refusal(400, 'INVALID_ARGUMENT', 'Messages of a list have a key each: put it into the message.')
  const items = messages.map((message) => itemOf(session, message, message.key, request))
  const results = await service.client.enqueueMany(items)
  const isMixed = results.some(({ ok }) => !ok)
  return json(
    results.map((result) => resultOf(session, result)),
    isMixed ? 207 : 202,
  )
}

function resultOf(session: string, result: SendResult) {
  if (result.ok) {
    const { seq, id, duplicate, position } = result
    return { session, seq, id, duplicate, position }
  }
  const { status, code, message } = toRefusal(result.error, () => undefined)
  return { type: 'about:blank', title: 'Refused', status, code, detail: message }
}

function itemOf(sessionId: string, message: Message, key: string | undefined, request: Request): SendItem {
  const { payload, text, kind, source, whenBusy } = message
  const traceparent = request.headers.get('traceparent') ?? undefined
  return {
    sessionId,
    message: { kind, payload: text ?? payload },
    source,
    whenBusy,
    idempotencyKey: key,
    traceparent,
  }
}

const withoutId = ({ sessionId: _, ...options }: Omit<SendItem, 'message'>) => options

const withdraw = route({
  method: 'delete',
  path: '/v1/sessions/{id}/messages/{seq}',
  name: 'withdrawMessage',
  summary: 'Take back a message that has not started.',
  right: 'produce',
  answers: { 204: { description: 'It is taken back.' } },
  refusals: [404, 409],
  handle: async ({ service, session, path }) => {
    await service.client.withdraw(session, seqOf(path))
    return nothing()
  },
})

const retry = route({
  method: 'post',
  path: '/v1/sessions/{id}/messages/{seq}/retry',
  name: 'retryMessage',
  summary: 'Send a failed or stopped message again, as a new message that refers to it.',
  right: 'produce',
  answers: { 202: { description: 'Accepted.', schema: schemas.accepted } },
  refusals: [404, 409, 429],
  handle: async ({ service, session, path }) => {
    const { seq, id, duplicate, position } = await service.client.retry(session, seqOf(path))
    return json({ session, seq, id, duplicate, position }, 202)
  },
})

const stop = route({
  method: 'post',
  path: '/v1/sessions/{id}/stop',
  name: 'stopSession',
  summary:
    'Stop everything sent so far, or up to a message, or only the turn that runs. Repeating it is harmless.',
  right: 'stop',
  body: schemas.stop,
  answers: { 200: { description: 'Nothing up to `through` starts any more.', schema: schemas.stopped } },
  refusals: [404, 409, 413, 415],
  handle: async ({ service, session, body, request }) => {
    const { wait = 0, ...what } = body
    const options = { ...what, waitMs: Math.round(wait * 1000), signal: request.signal }
    const { outcomes, ...receipt } = await service.client.stop(session, options)
    const idle = [{ seq: null, outcome: 'idle', ms: 0 }]
    return json({ ...receipt, outcomes: outcomes.length > 0 ? outcomes : idle })
  },
})

export function seqOf({ seq = '' }: Readonly<Record<string, string>>): number {
  const number = Number(seq)
  if (/^[1-9]\d{0,15}$/.test(seq) && Number.isSafeInteger(number)) return number
  throw new Refusal(400, 'INVALID_ARGUMENT', 'The number of a message is a whole number from 1.')
}

export const messageRoutes: readonly Route[] = [send, withdraw, retry, stop]
