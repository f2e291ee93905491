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

  type Call = [sourceOrSha: string, keyCount: number, ...inputs: (string | number)[]]
  const call = (first: string, inputs: Inputs<K, A>): Call => [
    first,
    spec.keys.length,
    ...spec.keys.map((name) => inputs[name]),
    ...args.map((name) => inputs[name]),
  ]

  async function once(redis: RedisClient, inputs: Inputs<K, A>): Promise<R> {
    try {
      return spec.reply(await redis.evalsha(...call(sha, inputs)))
    } catch (error) {
      if (!isNoScript(error)) throw error
      return spec.reply(await redis.eval(...call(source, inputs)))
    }
  }

  async function many(redis: RedisClient, list: readonly Inputs<K, A>[]): Promise<(R | Error)[]> {
    if (list.length === 0) return []
    if (isCluster(redis)) return Promise.all(list.map((inputs) => once(redis, inputs).catch(toError)))
    const pipeline = redis.pipeline()
    for (const inputs of list) pipeline.evalsha(...call(sha, inputs))
    const replies = await results(pipeline.exec(), list.length)
    const unknown = list.flatMap((inputs, index) => (isNoScript(replies[index]) ? [{ inputs, index }] : []))
    if (unknown.length > 0) {
      const again = redis.pipeline()
      for (const { inputs } of unknown) again.eval(...call(source, inputs))
      const answers = await results(again.exec(), unknown.length)
      for (const [position, { index }] of unknown.entries()) replies[index] = answers[position]
    }
    return replies.map((reply) => (reply instanceof Error ? reply : decoded(spec.reply, reply)))
  }

  return Object.assign(once, { many })
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
