/**
 * Lua scripts with named inputs. A script is the only way to check and act in one step, and everything that
 * changes a lock or a list is one: it compares first, so it may be sent twice. Inputs become Lua locals of
 * the same name (`ARGV` are always strings), and the type of a call lists them, so no call can pass them in
 * the wrong order.
 */
import { createHash } from 'node:crypto'
import { isCluster } from './connect.ts'
import type { RedisClient } from './connect.ts'

export type Inputs<K extends string, A extends string> = Record<K, string> & Record<A, string | number>

export interface Script<K extends string, A extends string, R> {
  /** Runs it once; rejects with whatever Redis or the connection said. */
  (redis: RedisClient, inputs: Inputs<K, A>): Promise<R>
  /**
   * Runs it for every element, in one pipeline (in a cluster as single commands at once). Never rejects: an
   * element that fails is an Error in its place and does not touch the others.
   */
  many(redis: RedisClient, list: readonly Inputs<K, A>[]): Promise<(R | Error)[]>
}

export interface ScriptSpec<K extends string, A extends string, R> {
  /** Key names, all of one session (or single keys), for the sake of cluster slots. */
  keys: readonly K[]
  args?: readonly A[]
  lua: string
  /** Decodes what the script returned; throwing makes the call fail. */
  reply: (value: unknown) => R
}

export function script<const K extends string, R, const A extends string = never>(
  spec: ScriptSpec<K, A, R>,
): Script<K, A, R> {
  const args = spec.args ?? []
  const source = [...spec.keys.map(declare('KEYS')), ...args.map(declare('ARGV'))].join(' ') + spec.lua
  const sha = createHash('sha1').update(source).digest('hex')

  const call = (inputs: Inputs<K, A>): Call => ({
    sha,
    source,
    inputs: [spec.keys.length, ...spec.keys.map((name) => inputs[name]), ...args.map((name) => inputs[name])],
  })

  const once = (redis: RedisClient, inputs: Inputs<K, A>): Promise<R> =>
    share(redis, call(inputs)).then(spec.reply)

  async function many(redis: RedisClient, list: readonly Inputs<K, A>[]): Promise<(R | Error)[]> {
    const replies = await runAll(redis, list.map(call))
    return replies.map((reply) => (reply instanceof Error ? reply : decoded(spec.reply, reply)))
  }

  return Object.assign(once, { many })
}

/** A script ready to run: its hash, its text, and the number of keys followed by keys and arguments. */
interface Call {
  readonly sha: string
  readonly source: string
  readonly inputs: readonly [keyCount: number, ...inputs: (string | number)[]]
}

interface Shared {
  readonly call: Call
  readonly resolve: (reply: unknown) => void
  readonly reject: (error: Error) => void
}

const gathering = new WeakMap<RedisClient, Shared[]>()

/**
 * Calls made in the same turn of the event loop share a pipeline: when a batch of sessions finishes together, its next
 * steps go to Redis in one write. Each is answered and may fail on its own.
 */
function share(redis: RedisClient, call: Call): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const batch = gathering.get(redis)
    if (batch) {
      batch.push({ call, resolve, reject })
      return
    }
    const fresh: Shared[] = [{ call, resolve, reject }]
    gathering.set(redis, fresh)
    queueMicrotask(() => {
      gathering.delete(redis)
      void runAll(
        redis,
        fresh.map((shared) => shared.call),
      ).then((replies) => {
        for (const [index, shared] of fresh.entries()) {
          const reply = replies[index]
          if (reply instanceof Error) shared.reject(reply)
          else shared.resolve(reply)
        }
      })
    })
  })
}

/** The replies in order, errors among them. Never rejects. A script that Redis does not know is sent again as text. */
async function runAll(redis: RedisClient, calls: readonly Call[]): Promise<unknown[]> {
  if (calls.length === 0) return []
  if (isCluster(redis) || calls.length === 1) return Promise.all(calls.map((call) => runOne(redis, call)))
  const pipeline = redis.pipeline()
  for (const { sha, inputs } of calls) pipeline.evalsha(sha, ...inputs)
  const replies = await results(pipeline.exec(), calls.length)
  const unknown = [...calls.entries()].filter(([index]) => isNoScript(replies[index]))
  if (unknown.length > 0) {
    const again = redis.pipeline()
    for (const [, { source, inputs }] of unknown) again.eval(source, ...inputs)
    const answers = await results(again.exec(), unknown.length)
    for (const [position, [index]] of unknown.entries()) replies[index] = answers[position]
  }
  return replies
}

async function runOne(redis: RedisClient, { sha, source, inputs }: Call): Promise<unknown> {
  try {
    return await redis.evalsha(sha, ...inputs).catch((error: unknown) => {
      if (isNoScript(error)) return redis.eval(source, ...inputs)
      throw error
    })
  } catch (error) {
    return toError(error)
  }
}

/** A name that Lua could not bind would only fail in Redis, at run time. */
const NAME = /^[a-z][A-Za-z0-9]*$/
const RESERVED = new Set(
  (
    'and break do else elseif end false for function if in local nil not or repeat return then true until ' +
    'while redis string table math type tonumber tostring pairs ipairs'
  ).split(' '),
)

const declare =
  (from: 'KEYS' | 'ARGV') =>
  (name: string, index: number): string => {
    if (!NAME.test(name) || RESERVED.has(name))
      throw new Error(`"${name}" cannot name an input of a Lua script.`)
    return `local ${name} = ${from}[${index + 1}]`
  }

const isNoScript = (error: unknown): boolean => error instanceof Error && error.message.startsWith('NOSCRIPT')

const toError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)))

function decoded<R>(reply: (value: unknown) => R, value: unknown): R | Error {
  try {
    return reply(value)
  } catch (error) {
    return toError(error)
  }
}

/** A pipeline's answers in order; one that could not be sent at all fails every element. */
async function results(sent: Promise<[Error | null, unknown][] | null>, count: number): Promise<unknown[]> {
  try {
    const answers = await sent
    return Array.from({ length: count }, (_, index) => {
      const [error, value] = answers?.[index] ?? [new Error('The pipeline was not answered.'), undefined]
      return error ?? value
    })
  } catch (error) {
    return Array.from({ length: count }, () => toError(error))
  }
}
