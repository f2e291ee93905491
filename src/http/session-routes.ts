/** Sessions: look, list, read, watch, delete; positions of readers; tokens for browsers. */
import type { Explanation, SessionSummary, SessionView } from '../index.ts'
import { covers, type Principal } from './access.ts'
import { STREAM_HEADERS } from './event-stream.ts'
import { explanation } from './explain-schema.ts'
import { Refusal } from './refusal.ts'
import { json, nothing, route, type Route } from './route.ts'
import * as schemas from './schemas.ts'

const list = route({
  method: 'get',
  path: '/v1/sessions',
  name: 'listSessions',
  summary: 'Sessions by id, a page at a time; only those of the key’s tenants.',
  right: 'watch',
  query: schemas.sessionsQuery,
  answers: { 200: { description: 'A page.', schema: schemas.sessions } },
  handle: async ({ service, principal, query }) => {
    const { limit = 100, ...rest } = query
    const { tenants } = principal
    const options = { ...rest, limit, ...(tenants !== 'all' && { tenants }) }
    const sessions = await service.client.sessions(options)
    const next = sessions.length < limit ? null : sessions.at(-1)?.id
    return json({ sessions: sessions.map(withoutToken), next })
  },
})

/** An owner’s token is nobody’s business. */
const withoutToken = <S extends SessionSummary | SessionView>({ owner: _, ...session }: S) => session

const show = route({
  method: 'get',
  path: '/v1/sessions/{id}',
  name: 'showSession',
  summary: 'Where a session stands: what runs, what waits and for what.',
  right: 'watch',
  answers: { 200: { description: 'The session.', schema: schemas.session } },
  refusals: [404],
  handle: async ({ service, session }) => json(withoutToken(await service.client.inspect(session))),
})

const explain = route({
  method: 'get',
  path: '/v1/sessions/{id}/explain',
  name: 'explainSession',
  summary: 'Why a session does not move, and what would make it.',
  right: 'watch',
  answers: { 200: { description: 'The answer.', schema: explanation } },
  refusals: [404],
  handle: async ({ service, principal, session }) => {
    const told = await service.client.explain(session)
    return json(principal.tenants === 'all' ? told : withoutFleet(told))
  },
})

/** Whoever may not see all sessions learns nothing of the processes that serve them. A token has no tenants. */
const withoutFleet = (told: Explanation): Explanation => ({
  ...told,
  owner: told.owner && { ...told.owner, process: null, host: null, pid: null },
  lock: told.lock && { ...told.lock, process: null },
  processes: null,
})

const queue = route({
  method: 'get',
  path: '/v1/sessions/{id}/queue',
  name: 'listQueue',
  summary: 'Messages that have not started and will, oldest first.',
  right: 'watch',
  query: schemas.page,
  answers: { 200: { description: 'A page.', schema: schemas.queue } },
  refusals: [404],
  handle: async ({ service, session, query }) =>
    json({ messages: await service.client.queue(session, given(query)) }),
})

const entries = route({
  method: 'get',
  path: '/v1/sessions/{id}/entries',
  name: 'listEntries',
  summary: 'The transcript behind a cursor, oldest first.',
  right: 'watch',
  query: schemas.entriesQuery,
  answers: { 200: { description: 'A page; `cursor` is where it ends.', schema: schemas.entries } },
  refusals: [404],
  handle: async ({ service, session, query }) => json(await service.client.transcript(session, given(query))),
})

const events = route({
  method: 'get',
  path: '/v1/sessions/{id}/events',
  name: 'watchSession',
  summary:
    'The transcript behind a cursor and then, as it happens, entries, deltas and changes of state (server-sent events).',
  right: 'watch',
  query: schemas.eventsQuery,
  headers: { 'last-event-id': 'Goes before `after`: the id of the last event that was seen.' },
  answers: {
    200: {
      description:
        'text/event-stream: entry, delta, gap, state, resync, reconnect, gone. An event’s id is its cursor.',
    },
  },
  refusals: [404],
  handle: async ({ service, principal, session, query, request }) => {
    const after = request.headers.get('last-event-id') ?? query.after ?? '0'
    const { client, access, streams } = service
    const isAllowed = () => mayStill(() => access.identify(request.headers), session)
    const { expiresAt } = principal
    const stream = await streams.open(client, session, { after, isAllowed, expiresAt })
    const isHead = request.method === 'HEAD'
    if (isHead) stream.leave()
    return new Response(isHead ? null : stream.body(), { headers: STREAM_HEADERS })
  },
})

async function mayStill(identify: () => Promise<Principal>, session: string): Promise<boolean> {
  try {
    const principal = await identify()
    return principal.rights.has('watch') && covers(principal, session)
  } catch (error) {
    if (error instanceof Refusal) return false
    throw error
  }
}

const cursor = route({
  method: 'get',
  path: '/v1/sessions/{id}/cursors/{reader}',
  name: 'showCursor',
  summary: 'How far a reader is; all null when it never said so.',
  right: 'watch',
  answers: { 200: { description: 'Its positions.', schema: schemas.readerCursor } },
  refusals: [404],
  handle: async ({ service, session, path }) =>
    json(await service.client.cursor(session, path['reader'] ?? '')),
})

const move = route({
  method: 'put',
  path: '/v1/sessions/{id}/cursors/{reader}',
  name: 'moveCursor',
  summary: 'Say how far a reader is. Positions only move on; an older one changes nothing.',
  right: 'watch',
  body: schemas.cursorMove,
  answers: { 200: { description: 'What holds now.', schema: schemas.readerCursor } },
  refusals: [404],
  handle: async ({ service, session, path, body }) =>
    json(await service.client.moveCursor(session, path['reader'] ?? '', body)),
})

const erase = route({
  method: 'delete',
  path: '/v1/sessions/{id}',
  name: 'deleteSession',
  summary: 'Delete a session: what runs or waits is stopped, its transcript is gone for readers at once.',
  right: 'admin',
  answers: { 204: { description: 'It is deleted.' } },
  refusals: [404],
  handle: async ({ service, session }) => {
    await service.client.delete(session)
    return nothing()
  },
})

const token = route({
  method: 'post',
  path: '/v1/sessions/{id}/tokens',
  name: 'createToken',
  summary: 'A short-lived token for a browser: this session, some of the rights of who asks.',
  right: 'produce',
  body: schemas.tokenRequest,
  answers: { 200: { description: 'The token, for `Authorization: Bearer`.', schema: schemas.token } },
  refusals: [409, 413, 415],
  handle: async ({ service, principal, session, body }) => {
    const { tokens } = service.access
    if (!tokens)
      throw new Refusal(
        409,
        'INVALID_OPTIONS',
        'This server gives no tokens: set BUTLER_TOKEN_SECRET on all servers.',
      )
    const missing = body.rights.find((right) => !principal.rights.has(right))
    if (missing !== undefined || principal.session !== undefined)
      throw new Refusal(403, 'FORBIDDEN', `This key cannot give the right ${missing ?? 'to others'}.`)
    return json(await tokens.sign(session, body.rights, body.ttlSeconds))
  },
})

/** Without what was left out, which is not the same as undefined. */
function given<T extends object>(query: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined)) as never
}

export const sessionRoutes: readonly Route[] = [
  list,
  show,
  explain,
  queue,
  entries,
  events,
  cursor,
  move,
  erase,
  token,
]
