// Faults in the scripts and in what hears and beats.
import type { Bug } from './bug.ts'

const QUEUE = ['redis/queue.test.ts']
const LOCK = ['redis/lock.test.ts']

const queue = (name: string, from: string, to: string, noticedBy = QUEUE): Bug => ({
  name,
  file: 'redis/queue.ts',
  edits: [[from, to]],
  noticedBy,
})

const lock = (name: string, from: string, to: string, noticedBy = LOCK): Bug => ({
  name,
  file: 'redis/lock.ts',
  edits: [[from, to]],
  noticedBy,
})

export const redisBugs: readonly Bug[] = [
  queue(
    'producers push on the taking end',
    "redis.call('LPUSH', queue, reference)",
    "redis.call('RPUSH', queue, reference)",
  ),
  queue(
    'the newest reference is taken first',
    "'LMOVE', queue, processing, 'RIGHT', 'LEFT'",
    "'LMOVE', queue, processing, 'LEFT', 'LEFT'",
  ),
  queue(
    'recovered references go to the wrong end',
    "'LMOVE', processing, queue, 'LEFT', 'RIGHT'",
    "'LMOVE', processing, queue, 'LEFT', 'LEFT'",
  ),
  queue(
    'a replaced owner clears and takes',
    "if value ~= token then return {'lost'",
    "if value == '' then return {'lost'",
  ),
  queue(
    'a session turns idle without looking into its queue',
    "local taken = unlessForeign(queue, 'LMOVE', queue, processing, 'RIGHT', 'LEFT')",
    'local taken = false',
  ),
  queue(
    'a session turns idle although MySQL has more',
    "if more == '1' then return {'empty', foreign} end",
    '',
  ),
  queue('what was finished stays in processing', "unlessForeign(processing, 'LTRIM', processing, 1, 0)", ''),
  queue(
    'a key of another type fails every step',
    "if not string.find(refusal, 'WRONGTYPE', 1, true) then return redis.call(...) end",
    'if refusal then return redis.call(...) end',
  ),
  lock(
    'anybody may delete the lock',
    "if value == token or value == token .. '${IDLE}' then return redis.call('DEL', lock) end",
    "if value then return redis.call('DEL', lock) end",
  ),
  lock(
    'a renewal is a plain EXPIRE',
    "if value == token then\n      redis.call('PEXPIRE', lock, ttlMs)\n      return {'held'}",
    "if type(value) == 'string' then\n      redis.call('PEXPIRE', lock, ttlMs)\n      return {'held'}",
  ),
  lock('whoever asks turns a lock busy', "if value ~= token .. '${IDLE}' then return 0 end", ''),
  lock('a swap does not compare', 'if value ~= from and value ~= to then return 0 end', ''),
  lock(
    'a repeated acquire locks itself out',
    'value == token or string.sub(value, -5)',
    'string.sub(value, -5)',
  ),
  lock(
    'an idle lock is a right',
    "value == token or string.sub(value, -5) == '${IDLE}' then",
    'value == token then',
  ),
  lock(
    'a lock that was lost is not taken back',
    "return {type(value) == 'string' and 'held' or 'retaken'}",
    "return {'held'}",
  ),
  lock(
    'a lock has no end',
    "redis.call('SET', lock, token, 'PX', ttlMs)\n      return false",
    "redis.call('SET', lock, token)\n      return false",
  ),
  {
    name: 'an older attempt streams between the newer one',
    file: 'redis/live.ts',
    edits: [['if newer or (not older', 'if (not older']],
    noticedBy: ['redis/live.test.ts'],
  },
  {
    name: 'deltas are kept without a bound',
    file: 'redis/live.ts',
    edits: [['if to == lastNow then break end', 'if to then break end']],
    noticedBy: ['redis/live.test.ts'],
  },
]
