// The lives of a session in which the worker under test is killed, reply by reply. Together they hold every step there
// is: acquire, recover, start, step, append, finish, the next turn in the same commit, idle and busy again, stop,
// interrupt, withdraw, retry, detach, drain, takeover, dead letter.
//
// Scripts only wait for what comes about whether the worker lives or is dead and replaced.
import type { TunablesInput } from '../../src/index.ts'
import type { Stage } from './stage.ts'

export interface Life {
  readonly name: string
  readonly about: string
  readonly tunables?: TunablesInput
  /** Before the worker serves. */
  readonly before?: (stage: Stage) => Promise<unknown>
  /** Replies count from the worker's first connection on; otherwise from `play` on. */
  readonly fromStart?: true
  /** When the worker serves. */
  readonly ready?: (stage: Stage) => Promise<unknown>
  readonly play: (stage: Stage) => Promise<unknown>
  /** The worker under test drains, and hands over the turn that it runs. */
  readonly drains?: true
  /** How messages of chat-1 may end other than completed. */
  readonly ends?: Readonly<Record<number, readonly string[]>>
}

export const LIVES: readonly Life[] = [
  {
    name: 'arrival',
    about: 'the process starts, and a message is waiting',
    before: (stage) => stage.send({ do: 'echo' }),
    fromStart: true,
    play: (stage) => stage.final(1),
  },
  {
    name: 'turn',
    about: 'acquire, recover, start, two steps, finish, idle',
    play: async (stage) => {
      await stage.send({ do: 'steps', count: 2 })
      await stage.final(1)
    },
  },
  {
    name: 'again',
    about: 'idle to busy, a tool call, idle',
    ready: async (stage) => {
      await stage.send({ do: 'echo' })
      await stage.final(1)
      await stage.idle()
    },
    play: async (stage) => {
      await stage.send({ do: 'tool' })
      await stage.final(2)
    },
  },
  {
    name: 'backlog',
    about: 'each turn but the first starts in the commit that ends the one before',
    play: async (stage) => {
      await Promise.all([
        stage.send({ do: 'echo' }),
        stage.send({ do: 'steps', count: 1 }),
        stage.send({ do: 'echo' }),
      ])
      await stage.final(3)
    },
  },
  {
    name: 'stop',
    about: 'a running turn and a waiting message are stopped, the next message runs',
    play: async (stage) => {
      await stage.send({ do: 'gate', name: 'never' })
      await stage.saw('start', 1)
      await stage.send({ do: 'echo' })
      await stage.stop()
      await stage.send({ do: 'echo' })
      await stage.final(3)
    },
    ends: { 1: ['stopped'], 2: ['stopped'] },
  },
  {
    name: 'interrupt',
    about: 'a message stops the running turn and whatever waits before it, and runs next',
    play: async (stage) => {
      await stage.send({ do: 'gate', name: 'never' })
      await stage.saw('start', 1)
      await stage.send({ do: 'echo' })
      await stage.send({ do: 'echo' }, { whenBusy: 'interrupt' })
      await stage.final(3)
    },
    ends: { 1: ['stopped'], 2: ['stopped'] },
  },
  {
    name: 'withdraw',
    about: 'a waiting message is taken back, the one behind it runs',
    play: async (stage) => {
      await stage.send({ do: 'gate', name: 'go' })
      await stage.saw('start', 1)
      await stage.send({ do: 'echo' })
      await stage.withdraw(2)
      await stage.send({ do: 'echo' })
      await stage.open('go')
      await stage.final(3)
    },
    ends: { 2: ['withdrawn'] },
  },
  {
    name: 'retry',
    about: 'the handler fails once, a back-off, the second attempt',
    play: async (stage) => {
      await stage.send({ do: 'fail', times: 1 })
      await stage.final(1)
    },
  },
  {
    name: 'back-off',
    about: 'the handler fails, a stop ends the back-off',
    tunables: { retryDelaysMs: [5000] },
    play: async (stage) => {
      await stage.send({ do: 'fail', times: 9 })
      await stage.saw('threw', 1)
      await stage.stop()
      await stage.final(1)
    },
    ends: { 1: ['stopped'] },
  },
  {
    name: 'dead-letter',
    about: 'the handler fails three times, the next message runs',
    tunables: { retryDelaysMs: [50] },
    play: async (stage) => {
      await Promise.all([stage.send({ do: 'fail', times: 9 }), stage.send({ do: 'echo' })])
      await stage.final(2)
    },
    ends: { 1: ['failed'] },
  },
  {
    name: 'detach',
    about: 'the handler ignores a stop and goes on writing, the next message runs',
    tunables: { stopGraceMs: 60 },
    play: async (stage) => {
      await stage.send({ do: 'deaf', ms: 60_000, gate: 'heard' })
      await stage.saw('start', 1)
      await stage.stop()
      await stage.send({ do: 'echo' })
      await stage.final(2)
      await stage.open('heard')
    },
    ends: { 1: ['stopped'] },
  },
  {
    name: 'drain',
    about: 'SIGTERM in mid-turn: idle lock and waiting message go, the turn is handed over',
    tunables: { drainGraceMs: 100 },
    drains: true,
    ready: async (stage) => {
      await stage.send({ do: 'echo' }, { session: 'side-1' })
      await stage.final(1, 'side-1')
    },
    play: async (stage) => {
      await stage.send({ do: 'gate', name: 'go' })
      await stage.saw('start', 1)
      await stage.send({ do: 'echo' })
      await stage.relieve()
      await stage.drained()
      await stage.open('go')
      await stage.final(2)
    },
  },
  {
    name: 'takeover',
    about: 'another process died in a tool call: verdict, eviction, the same message again',
    before: (stage) => stage.predecessor({ do: 'tool', gate: 'go' }, 'called'),
    play: async (stage) => {
      await stage.bury()
      await stage.open('go')
      await stage.final(2)
    },
  },
  {
    name: 'poison',
    about: 'another process died once too often of the same message: given up, the next one runs',
    tunables: { maxCrashes: 1 },
    before: (stage) => stage.predecessor({ do: 'gate', name: 'go' }, 'start'),
    play: async (stage) => {
      await stage.bury()
      await stage.open('go')
      await stage.final(2)
    },
    // The worker under test dies with the second one, or with the last.
    ends: { 1: ['failed'], 2: ['completed', 'failed'], 3: ['completed', 'failed'] },
  },
]
