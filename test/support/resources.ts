// What this process holds: its timers, sockets, servers, pipes and child processes, also those that would not keep it
// alive (`unref`), which Node's own list leaves out. Each knows where it was made.
//
// Only creations are hooked. Whether something is still there it says itself: hooks for what ends would follow every
// promise to its collection, which costs the run more than all else here.
import { createHook } from 'node:async_hooks'

const HANDLES = [
  'TCPWRAP',
  'TCPSERVERWRAP',
  'PIPEWRAP',
  'PIPESERVERWRAP',
  'UDPWRAP',
  'PROCESSWRAP',
  'FSEVENTWRAP',
  'STATWATCHER',
]
const WATCHED = new Set(['Timeout', ...HANDLES])
const FRAMES_MAX = 24

/** The runner's own timers, and those of `AbortSignal.timeout`, which nobody can call off: they end by themselves. */
const NOT_OURS = /node_modules\/(vitest|@vitest|vite|vite-node|tinypool|tinyexec|birpc)\//
const BY_ITSELF = /AbortSignal\.timeout/

export interface Resource {
  readonly kind: string
  /** The first places in the code that made it. */
  readonly madeAt: string
}

class Held implements Resource {
  readonly kind: string
  readonly #subject: object
  readonly #stack: { stack?: string } = {}
  #isOurs: boolean | undefined

  constructor(kind: string, subject: object) {
    this.kind = kind
    this.#subject = subject
    const limit = Error.stackTraceLimit
    Error.stackTraceLimit = FRAMES_MAX
    Error.captureStackTrace(this.#stack)
    Error.stackTraceLimit = limit
  }

  get isThere(): boolean {
    if (this.kind === 'Timeout') return !(this.#subject as { _destroyed: boolean })._destroyed
    // A handle that is closed has nothing to say.
    return typeof (this.#subject as { hasRef?: () => unknown }).hasRef?.() === 'boolean'
  }

  /** Told by the stack, which is written out only for what is still there when somebody asks. */
  get isOurs(): boolean {
    this.#isOurs ??= !NOT_OURS.test(this.#frames()[0] ?? '') && !BY_ITSELF.test(this.#stack.stack ?? '')
    return this.#isOurs
  }

  get madeAt(): string {
    return this.#frames().slice(0, 4).join(' < ')
  }

  #frames(): string[] {
    return (this.#stack.stack ?? '')
      .split('\n')
      .slice(1)
      .filter((frame) => !/node:|support\/resources\.ts/.test(frame))
      .map((frame) => frame.trim().replace(/^at /, ''))
  }
}

/** One hook for all files that share this process. */
const shared = globalThis as { butlerResources?: Set<Held> }

function watch(): Set<Held> {
  const all = new Set<Held>()
  createHook({
    init(_id, type, _trigger, resource) {
      if (WATCHED.has(type)) all.add(new Held(type, resource))
    },
  }).enable()
  return all
}

/** Everything there is now, of what was made since the first call in this process. */
export function resources(): Resource[] {
  const all = (shared.butlerResources ??= watch())
  for (const one of all) if (!one.isThere) all.delete(one)
  return [...all].filter((one) => one.isOurs)
}
