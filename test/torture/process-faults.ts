// What happens to a process: a worker, or a producer.
import { until } from '../support/eventually.ts'
import type { Desk } from './desk.ts'
import type { Fault } from './fault.ts'
import type { Post } from './stage.ts'

export const workerFaults: readonly Fault<Post>[] = [
  {
    name: 'worker-kill',
    weight: 3,
    lasts: [0, 1],
    costs: 'target',
    begin: async (stage, _dice, post) => {
      await stage.vacate(post, 'kill')
      return () => stage.occupy(post)
    },
  },
  {
    name: 'worker-freeze',
    weight: 3,
    lasts: [0.1, 2.5],
    costs: 'target',
    begin: (_stage, _dice, { member }) => {
      member.freeze()
      return () => member.thaw()
    },
  },
  {
    name: 'worker-drain',
    weight: 2,
    lasts: [0.1, 1],
    costs: 'handover',
    begin: async (stage, _dice, post) => {
      await stage.vacate(post, 'terminate')
      return () => stage.occupy(post)
    },
  },
  {
    name: 'worker-clock',
    weight: 1,
    lasts: [0.2, 2],
    costs: 'none',
    gentle: true,
    begin: (_stage, _dice, { member }) => {
      member.jump()
      return () => member.jump()
    },
  },
]

export const producerFaults: readonly Fault<Desk>[] = [
  {
    name: 'producer-kill',
    weight: 2,
    lasts: [0, 0],
    costs: 'none',
    gentle: true,
    begin: (stage, _dice, desk) => stage.replaceProducer(desk),
  },
  {
    name: 'producer-freeze',
    weight: 1,
    lasts: [0.1, 2],
    costs: 'none',
    begin: (_stage, _dice, { child }) => {
      child.kill('SIGSTOP')
      return () => void child.kill('SIGCONT')
    },
  },
]

/** Heals a post whose process is gone for whatever reason: there is always somebody in the end. */
export const occupied = (post: Post): Promise<unknown> =>
  until(() => post.member.alive && !post.vacant, { ms: 60_000, what: 'a worker at its post' })
