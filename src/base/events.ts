/**
 * The catalogue of events: name, fields, level and meaning, in one place. Log lines, metrics and the
 * dashboard are derived from it; an event that is not here cannot be emitted. Every event names the session,
 * message and epoch it is about where they are known (I10). No field ever holds a payload.
 *
 * Levels: error = someone must act; warn = a loss that was handled; info = lifecycle; debug = per message or
 * session.
 */
export type Level = 'error' | 'warn' | 'info' | 'debug'

interface Entry<Fields extends object> {
  readonly level: Level
  /** What happened, for people who read the log. */
  readonly doc: string
  /** Never set; carries the type of the event's fields. */
  readonly fields?: Fields
}

function event<Fields extends object>(level: Level, doc: string): Entry<Fields> {
  return { level, doc }
}

interface Worker {
  process: string
}

interface OfSession {
  session: string
  epoch?: number | undefined
}

/** A session that this process owns. */
interface Owned {
  session: string
  epoch: number
}

/** One run of a message's handler; `attempt` counts its starts. */
interface Turn extends Owned {
  seq: number
  attempt: number
}

/** A message that may never have been run: stopped while it waited, or counted out. */
interface Ended extends Owned {
  seq: number
  attempt?: number | undefined
}

interface Trouble {
  error: unknown
  session?: string | undefined
  where?: string | undefined
}

export const CATALOGUE = {
  'worker.started': event<Worker & { concurrency: number }>(
    'info',
    'A worker process began to serve sessions.',
  ),
  'worker.draining': event<Worker & { running: number }>(
    'info',
    'It takes no further turns; these still run.',
  ),
  'worker.stopped': event<Worker>('info', 'It let go of everything.'),
  'worker.stalled': event<Worker & { lagMs: number }>(
    'warn',
    'The event loop stood still: a handler blocks it.',
  ),
  'worker.overloaded': event<Worker & { waiting: number }>(
    'info',
    'All slots are taken while sessions wait.',
  ),

  'session.acquired': event<Owned & Worker>('debug', 'This process owns the session from now on.'),
  'session.refused': event<OfSession & { owner?: string | undefined }>(
    'debug',
    'Its lock was free, but a turn runs under another owner, which was asked to retake it.',
  ),
  'session.contested': event<OfSession & { owner?: string | undefined }>(
    'warn',
    'A stranger was in the lock of a running turn; the row is looked at.',
  ),
  'session.evicted': event<
    OfSession & {
      seq: number
      owner: string
      verdict: 'dead' | 'hung' | 'silent' | 'orphan'
      afterMs?: number | undefined
    }
  >(
    'warn',
    'A running turn was ended in the absence of its owner, which is dead, hung, silent or does not know it.',
  ),
  'session.lost': event<Owned & { seq?: number | undefined; why: string }>(
    'warn',
    'Another owner serves the session now; what ran here was aborted and can write nothing.',
  ),
  'session.idle': event<Owned>('debug', 'Nothing is left to do; the lock became a preference.'),
  'session.released': event<Owned>('debug', 'The session has no owner any more.'),
  'session.givenAway': event<OfSession>('info', 'A full process left a waiting session to another.'),

  'turn.started': event<Turn & { waitedMs?: number | undefined }>(
    'debug',
    'A turn began; the first attempt says how long its message had waited.',
  ),
  'turn.completed': event<Turn & { durationMs: number }>('debug', 'A turn and its message are complete.'),
  'turn.stopped': event<Ended & { afterMs?: number | undefined }>(
    'info',
    'The message was stopped, while it ran (so long after its signal had fired) or before.',
  ),
  'turn.failed': event<Ended & { error: unknown }>(
    'warn',
    'The message has failed for good; the session goes on.',
  ),
  'turn.retrying': event<Turn & { delayMs: number; error: unknown }>(
    'info',
    'The same message runs again after a wait.',
  ),
  'turn.handedOver': event<Turn>('info', 'A draining process left the turn to another, which runs it again.'),
  'turn.timedOut': event<Turn & { afterMs: number }>(
    'warn',
    'The turn took too long, or was silent for too long, and was aborted.',
  ),
  'turn.lost': event<Turn & { why: string }>(
    'warn',
    'The turn was aborted: it is not this process that runs it.',
  ),
  'turn.fenced': event<Turn>('warn', 'A write of the turn was refused: the row names another owner.'),
  'turn.detached': event<Turn & { detached: number }>(
    'warn',
    'The handler ignored its signal and was left behind; so many are in this process now.',
  ),

  'message.missing': event<OfSession & { seq: number }>(
    'error',
    'The row of a message is gone (restore, operator); the session went on without it.',
  ),
  'message.withdrawn': event<OfSession & { seq: number }>(
    'info',
    'The message had been taken back; it was passed over.',
  ),
  'message.unrunnable': event<OfSession & { seq?: number | undefined; kind: string; version: number }>(
    'warn',
    'No process can run this kind of message, or understands its version; it waits for one that does.',
  ),

  'lock.retaken': event<OfSession & { seq?: number | undefined }>(
    'info',
    'The lock of a running turn was missing in Redis and is back.',
  ),
  'lock.late': event<OfSession & { lateMs: number }>('warn', 'A lock could not be renewed in time.'),

  'process.suspected': event<Worker>('info', 'Nobody listens on the channel of this process.'),
  'process.dead': event<Worker>('warn', 'This process is dead; its turns are taken over.'),

  'watcher.cutOff': event<OfSession & { events: number; bytes: number }>(
    'info',
    'A reader took nothing while so much came in; it can go on from its cursor.',
  ),

  'sweep.done': event<{ found: number; woken: number }>(
    'debug',
    'A sweep: so many sessions had work that nobody ran, and were woken.',
  ),
  'queue.foreign': event<OfSession & { sample: string }>('warn', 'Something else wrote into our keys.'),
  'channel.junk': event<{ sample: string; channel?: string | undefined }>(
    'warn',
    'Something else published on our channels.',
  ),

  'redis.trouble': event<Trouble>('warn', 'Redis does not answer; running turns continue, new ones wait.'),
  'redis.ready': event<Record<string, never>>('info', 'Redis answers.'),
  'mysql.trouble': event<Trouble>('warn', 'MySQL does not answer; nothing starts or finishes.'),
  'mysql.ready': event<Record<string, never>>('info', 'MySQL answers.'),
  'background.error': event<Trouble & { where: string }>(
    'error',
    'Something failed where nobody waits for it.',
  ),
  'retention.pruned': event<{ counts: Readonly<Record<string, number>> }>('info', 'Old rows were removed.'),
} as const satisfies Record<string, Entry<object>>

export type EventName = keyof typeof CATALOGUE

/** Event name → its fields. */
export type Events = { [Name in EventName]: NonNullable<(typeof CATALOGUE)[Name]['fields']> }
