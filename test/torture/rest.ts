// What must be true when nothing is broken any more: every message becomes final, and then the system is quiet (I8, I9).
import { eventually, sleep, until } from '../support/eventually.ts'
import { monitorOf } from '../support/monitor.ts'
import { isForeign } from './key-faults.ts'
import type { Stage } from './stage.ts'

interface Unfinished {
  readonly id: string
  readonly done_seq: number
  readonly starts: number
  readonly running_seq: number | null
  readonly owner: string | null
}

const LOOK_MS = 200
/** Then it is given up, whatever still moves. */
const LONGEST_MS = 300_000

/** Waits until every message is final; says which session stood still for longer than `stillMs`. */
export async function settled(stage: Stage, stillMs: number): Promise<{ ms: number; problems: string[] }> {
  const { servers } = stage.options
  const began = performance.now()
  const seen = new Map<string, { state: string; since: number }>()
  for (;;) {
    const read = () =>
      servers.sql<Unfinished>(
        `select id, done_seq, starts, running_seq, owner from ${stage.database}.butler_sessions
         where inbox_seq > done_seq order by id`,
      )
    const left = await eventually(read, { ms: 30_000, everyMs: LOOK_MS, what: 'the database' })
    const ms = performance.now() - began
    if (left.length === 0) return { ms, problems: [] }
    for (const { id, ...row } of left) {
      const state = JSON.stringify(row)
      if (seen.get(id)?.state !== state) seen.set(id, { state, since: ms })
    }
    const still = left.flatMap(({ id }) => {
      const { state, since } = seen.get(id)!
      const said = `${id}: I8: with nothing broken it stood still for ${Math.round(ms - since)} ms: ${state}`
      return ms - since > stillMs ? [said] : []
    })
    if (still.length > 0) return { ms, problems: still }
    if (ms > LONGEST_MS) return { ms, problems: [`: I8: ${left.length} sessions have work without end`] }
    await sleep(LOOK_MS)
  }
}

const SETTLE_MS = 1000

/**
 * I9: fixed connections per process, nothing of a session's left but idle locks that end by themselves, and for a whole
 * `quietMs` not a command or statement for any session. What the last turns began may take `patienceMs` to be over.
 */
export async function idle(
  stage: Stage,
  { quietMs, poolSize, patienceMs = 20_000 }: { quietMs: number; poolSize: number; patienceMs?: number },
): Promise<string[]> {
  const problems: string[] = []
  const collect = (what: string, look: () => Promise<void>) =>
    eventually(look, { ms: patienceMs, everyMs: 250 }).catch((error: unknown) => {
      problems.push(`: I9: ${what}: ${error instanceof Error ? error.message : String(error)}`)
    })
  const quiet = async (ms: number) => {
    const [commands, texts] = await Promise.all([commandsIn(stage, ms), statementsIn(stage, ms)])
    if (commands.length > 0)
      throw new Error(`${commands.length} commands in ${ms} ms for sessions, such as ${commands[0]}`)
    if (texts.length > 0)
      throw new Error(`${texts.length} statements in ${ms} ms for sessions, such as ${texts[0]}`)
  }
  await collect('connections', async () => {
    const allowed = stage.way.connections(poolSize)
    for (const { lines, member } of stage.posts) {
      const [redis, mysql] = [lines.redis.connections(), lines.mysql.connections()]
      if (!allowed.redis.includes(redis))
        throw new Error(`${member.processId} has ${redis} connections to Redis`)
      if (mysql > allowed.mysqlMax) throw new Error(`${member.processId} has ${mysql} connections to MySQL`)
    }
  })
  await collect('unrest', () => quiet(SETTLE_MS))
  let left: string[] = []
  const isClear = async () => {
    left = (await Promise.all(stage.options.sessions.map((id) => leftOf(stage, id)))).flat()
    return left.length === 0
  }
  await until(isClear, { ms: patienceMs, everyMs: 250 }).catch((error: unknown) => {
    problems.push(...(left.length > 0 ? left : [`: I9: left over: ${String(error)}`]))
  })
  // From here on nothing is in order any more that comes only now and then.
  if (problems.length === 0)
    await quiet(quietMs).catch((error: Error) => problems.push(`: I9: unrest: ${error.message}`))
  return problems
}

/**
 * What a session's keys hold that should be gone when it is at rest. What somebody else put there may stay. So may, for
 * its time, a reference that came late, and one that was taken by a process that died then, or by a command that was
 * carried out when its process had given it up: see the rule `leftovers`.
 */
async function leftOf(stage: Stage, session: string): Promise<string[]> {
  const { servers } = stage.options
  const left: string[] = []
  for (const what of ['queue', 'processing'] as const) {
    const key = stage.key(session, what)
    if ((await servers.ask('TYPE', key)) !== 'list') continue
    const own = ((await servers.ask('LRANGE', key, 0, -1)) as string[]).filter((one) => !isForeign(one))
    const ends = Number(await servers.ask('PTTL', key)) > 0
    if (own.length > 0 && !ends) left.push(`${session}: I9: ${key} holds ${own.join(' ')}`)
    else for (const name of own) stage.note({ what: 'stays', session, name, fields: { list: what } })
  }
  const lock = stage.key(session, 'lock')
  if ((await servers.ask('TYPE', lock)) !== 'string') return left
  const [value, ttlMs] = [String(await servers.ask('GET', lock)), Number(await servers.ask('PTTL', lock))]
  if (!isForeign(value) && ttlMs !== -2 && !(value.endsWith('/idle') && ttlMs > 0))
    left.push(`${session}: I9: ${lock} is ${value} for ${ttlMs} ms`)
  return left
}

async function commandsIn(stage: Stage, ms: number): Promise<string[]> {
  const monitor = await monitorOf(stage.options.servers.redisUrl)
  try {
    await sleep(ms)
    return monitor.lines().filter((line) => line.includes(`${stage.prefix}:{`))
  } finally {
    monitor.end()
  }
}

/** Statements of the system's that name a session. */
async function statementsIn(stage: Stage, ms: number): Promise<string[]> {
  const { servers, sessions } = stage.options
  await servers.sql("set global log_output = 'TABLE'")
  await servers.sql('truncate table mysql.general_log')
  await servers.sql('set global general_log = 1')
  try {
    await sleep(ms)
  } finally {
    await servers.sql('set global general_log = 0')
  }
  const rows = await servers.sql<{ text: string }>(
    "select left(convert(argument using utf8mb4), 500) as text from mysql.general_log where user_host like 'butler[%'",
  )
  return rows.map(({ text }) => text).filter((text) => sessions.some((id) => text.includes(`'${id}'`)))
}
