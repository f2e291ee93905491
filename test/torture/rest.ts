// What must be true when nothing is broken any more: every message becomes final, and then the system is quiet (I8, I9).
import { eventually, sleep } from '../support/eventually.ts'
import { monitorOf } from '../support/monitor.ts'
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

/** I9: fixed connections per process, and not a command or statement for any session. */
export async function idle(
  stage: Stage,
  { quietMs, poolSize, patienceMs = 20_000 }: { quietMs: number; poolSize: number; patienceMs?: number },
): Promise<string[]> {
  const problems: string[] = []
  const collect = (what: string, look: () => Promise<void>) =>
    eventually(look, { ms: patienceMs, everyMs: 250 }).catch((error: unknown) => {
      problems.push(`: I9: ${what}: ${error instanceof Error ? error.message : String(error)}`)
    })
  await collect('connections', async () => {
    for (const { lines, member } of stage.posts) {
      const [redis, mysql] = [lines.redis.connections(), lines.mysql.connections()]
      if (redis !== 2) throw new Error(`${member.processId} has ${redis} connections to Redis`)
      if (mysql > poolSize) throw new Error(`${member.processId} has ${mysql} connections to MySQL`)
    }
  })
  await collect('commands', async () => {
    const monitor = await monitorOf(stage.options.servers.redisUrl)
    try {
      await sleep(quietMs)
      const busy = monitor.lines().filter((line) => line.includes(`${stage.prefix}:{`))
      if (busy.length > 0)
        throw new Error(`${busy.length} commands in ${quietMs} ms for sessions, such as ${busy[0]}`)
    } finally {
      monitor.end()
    }
  })
  await collect('statements', async () => {
    const busy = await statements(stage, quietMs)
    if (busy.length > 0) throw new Error(`${busy.length} statements for sessions, such as ${busy[0]}`)
  })
  return problems
}

/** Statements of the system's that name a session. */
async function statements(stage: Stage, ms: number): Promise<string[]> {
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
