/**
 * What is measured: one table says which event of the catalogue counts in which instrument, and everything else follows
 * from it. Nothing is labelled with a session, a key or a payload, so the number of series does not grow with the work.
 */
import type { Attributes } from '@opentelemetry/api'
import type { EventName, Events } from '../base/events.ts'

export type Stat = 'running' | 'waiting' | 'sessions' | 'detached'

interface About {
  /** As OpenTelemetry has it; in Prometheus `_` for `.`, and `_total` behind a counter. */
  readonly name: string
  readonly doc: string
  readonly unit: string
}

export type Metric = About &
  (
    | { readonly type: 'counter'; readonly from: readonly From[] }
    | { readonly type: 'histogram'; readonly from: readonly From[]; readonly buckets: readonly number[] }
    | { readonly type: 'gauge'; readonly stat: Stat | 'ready' | 'problem' }
  )

/** How an event counts. `fields` are those of the event; `from` makes it and checks that. */
interface From {
  readonly event: EventName
  readonly labels?: Attributes
  readonly labelsOf?: (fields: never) => Attributes
  /** Default 1; undefined: not this time. */
  readonly value?: (fields: never) => number | undefined
}

interface How<Name extends EventName> extends Omit<From, 'event'> {
  readonly labelsOf?: (fields: Events[Name]) => Attributes
  readonly value?: (fields: Events[Name]) => number | undefined
}

const from = <Name extends EventName>(event: Name, how: How<Name> = {}): From => ({ event, ...how })
const counter = (name: string, unit: string, doc: string, ...sources: readonly From[]): Metric => ({
  type: 'counter',
  name,
  unit: `{${unit}}`,
  doc,
  from: sources,
})
const seconds = (name: string, doc: string, source: From): Metric => ({
  type: 'histogram',
  name: `${name}.seconds`,
  unit: 's',
  doc,
  from: [source],
  buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800],
})
const gauge = (name: string, unit: string, doc: string, stat: Stat | 'ready' | 'problem'): Metric => ({
  type: 'gauge',
  name,
  unit: `{${unit}}`,
  doc,
  stat,
})
const inSeconds = (ms: number | undefined) => (ms === undefined ? undefined : ms / 1000)

export const METRICS: readonly Metric[] = [
  gauge('butler.turns.running', 'turn', 'Slots that are taken.', 'running'),
  gauge('butler.sessions.waiting', 'session', 'Sessions that wait here for a slot.', 'waiting'),
  gauge('butler.sessions.known', 'session', 'Sessions in memory, idle ones included.', 'sessions'),
  gauge(
    'butler.handlers.detached',
    'handler',
    'Handlers that ignored their signal and still run.',
    'detached',
  ),
  gauge('butler.ready', 'process', '1 if the process should get work, else 0.', 'ready'),
  gauge('butler.problem', 'process', '1 for each reason why it is not ready.', 'problem'),

  counter('butler.turns.started', 'turn', 'Turns that began.', from('turn.started')),
  counter(
    'butler.turns.ended',
    'turn',
    'Turns that ended, and messages that were ended without one.',
    from('turn.completed', { labels: { outcome: 'completed' } }),
    from('turn.stopped', { labels: { outcome: 'stopped' } }),
    from('turn.failed', { labels: { outcome: 'failed' } }),
    from('turn.retrying', { labels: { outcome: 'retrying' } }),
    from('turn.handedOver', { labels: { outcome: 'handed_over' } }),
    from('turn.lost', { labels: { outcome: 'lost' } }),
  ),
  seconds(
    'butler.turn.wait',
    'From the acceptance of a message to its first start: queue age and wake-up, by the clock of the database.',
    from('turn.started', { value: ({ waitedMs }) => inSeconds(waitedMs) }),
  ),
  seconds(
    'butler.turn.duration',
    'Of completed turns.',
    from('turn.completed', { value: ({ durationMs }) => inSeconds(durationMs) }),
  ),
  seconds(
    'butler.turn.stop',
    'From the signal of a stopped turn to its recorded end.',
    from('turn.stopped', { value: ({ afterMs }) => inSeconds(afterMs) }),
  ),
  counter('butler.turns.timed_out', 'turn', 'Turns that were ended by a time limit.', from('turn.timedOut')),
  counter('butler.turns.detached', 'turn', 'Handlers that were left behind.', from('turn.detached')),
  counter('butler.turns.fenced', 'turn', 'Writes that a replaced owner tried.', from('turn.fenced')),

  counter('butler.sessions.acquired', 'session', 'Sessions that got an owner.', from('session.acquired')),
  counter('butler.sessions.lost', 'session', 'Sessions that another owner has.', from('session.lost')),
  counter(
    'butler.sessions.given_away',
    'session',
    'Waiting sessions that a full process left to another.',
    from('session.givenAway'),
  ),
  counter(
    'butler.takeovers',
    'turn',
    'Turns that were ended in the absence of their owner.',
    from('session.evicted', { labelsOf: ({ verdict }) => ({ verdict }) }),
  ),
  seconds(
    'butler.takeover',
    'From when an owner was first missed to the end of its turn.',
    from('session.evicted', { value: ({ afterMs }) => inSeconds(afterMs) }),
  ),
  counter('butler.processes.dead', 'process', 'Processes that were found dead.', from('process.dead')),
  counter('butler.locks.late', 'lock', 'Renewals that did not come in time.', from('lock.late')),
  counter('butler.locks.retaken', 'lock', 'Locks that were missing and are back.', from('lock.retaken')),
  counter(
    'butler.locks.contested',
    'lock',
    'Strangers in the lock of a running turn, or kept out of it.',
    from('session.contested', { labels: { side: 'owner' } }),
    from('session.refused', { labels: { side: 'stranger' } }),
  ),

  counter('butler.sweeps', 'sweep', 'Sweeps of this process.', from('sweep.done')),
  counter(
    'butler.sweep.woken',
    'session',
    'Sessions that only a sweep found.',
    from('sweep.done', { value: ({ woken }) => woken }),
  ),
  counter(
    'butler.messages.unrunnable',
    'report',
    'Messages that no process can run, each time one is met.',
    from('message.unrunnable'),
  ),
  counter('butler.messages.missing', 'message', 'Messages whose row was gone.', from('message.missing')),
  counter('butler.messages.withdrawn', 'message', 'Messages taken back.', from('message.withdrawn')),
  counter(
    'butler.store.errors',
    'error',
    'Answers that a store failed to give.',
    from('redis.trouble', { labels: { store: 'redis' } }),
    from('mysql.trouble', { labels: { store: 'mysql' } }),
  ),
  counter('butler.background.errors', 'error', 'Failures that nobody waits for.', from('background.error')),
  counter(
    'butler.foreign',
    'message',
    'What others wrote into our keys, or published on our channels.',
    from('queue.foreign', { labels: { place: 'queue' } }),
    from('channel.junk', { labels: { place: 'channel' } }),
  ),
  counter('butler.worker.stalls', 'stall', 'Times the event loop stood still.', from('worker.stalled')),
  counter(
    'butler.worker.overloads',
    'report',
    'Looks at which nobody had a slot.',
    from('worker.overloaded'),
  ),
  counter('butler.watchers.cut_off', 'watcher', 'Readers that were too slow.', from('watcher.cutOff')),
  counter(
    'butler.rows.pruned',
    'row',
    'Old rows that were removed.',
    from('retention.pruned', {
      value: ({ counts }) => Object.values(counts).reduce((sum, count) => sum + count, 0),
    }),
  ),
]
