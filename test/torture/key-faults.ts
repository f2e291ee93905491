// What somebody else, or an operator, does to our keys and channels.
import type { Dice } from './dice.ts'
import type { Fault } from './fault.ts'
import type { Stage } from './stage.ts'

export const keyFaults: readonly Fault[] = [
  fault('lock-deleted', 3, (stage, dice) => stage.options.servers.ask('DEL', lock(stage, dice))),
  fault('lock-stolen', 2, (stage, dice) => {
    const value = dice.pick([
      'stranger',
      'Abcdef012345.0123456789abcdef',
      'Abcdef012345.0123456789abcdef/idle',
    ])
    const { lockTtlMs = 30_000 } = stage.options.tunables
    const lasting = dice.chance(0.5) ? ['PX', dice.between(100, lockTtlMs)] : []
    return stage.options.servers.ask('SET', lock(stage, dice), value, ...lasting)
  }),
  fault('queue-gone', 2, (stage, dice) => {
    const session = dice.pick(stage.options.sessions)
    const lists = [stage.key(session, 'queue'), stage.key(session, 'processing')]
    return stage.options.servers.ask('DEL', ...lists)
  }),
  fault('foreign-keys', 2, (stage, dice) => {
    const session = dice.pick(stage.options.sessions)
    const key = stage.key(session, dice.pick(['queue', 'processing']))
    const [write, ...args] = dice.pick([
      ['LPUSH', key, '\u0000\u00ff not a reference', '9007199254740993:x', '999999:m-nobody', '1:m-old'],
      ['SET', key, 'not a list'],
      ['HSET', stage.key(session, 'lock'), 'not', 'a string'],
      ['DEL', `${stage.prefix}:processes`],
    ])
    return stage.options.servers.ask(write!, ...args)
  }),
  fault('foreign-notices', 2, async (stage, dice) => {
    const { servers, sessions } = stage.options
    const ids = stage.posts.map(({ member }) => `${stage.prefix}:process:${member.processId}`)
    const channel = dice.pick([`${stage.prefix}:wake`, ...ids])
    const session = dice.pick(sessions)
    const junk = [
      '',
      '{',
      '{"stop":',
      `stop ${session} 999999`,
      `retake ${session}`,
      `{"wake":["${session}"]}`,
      session,
    ]
    for (const text of junk) await servers.ask('PUBLISH', channel, text)
  }),
]

const lock = (stage: Stage, dice: Dice) => stage.key(dice.pick(stage.options.sessions), 'lock')

/** None of these costs a turn or more than the lock's TTL. */
function fault(name: string, weight: number, act: (stage: Stage, dice: Dice) => Promise<unknown>): Fault {
  return {
    name,
    weight,
    lasts: [0, 0],
    costs: 'none',
    begin: async (stage, dice) => void (await act(stage, dice)),
  }
}
