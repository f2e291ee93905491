/** A worker process of the demo: runs the agent and reports to its parent what is to be seen. Forked by fleet.ts. */
import { createWorker } from '../index.ts'
import { createAgent } from './agent.ts'
import { openTools, type ToolName } from './tools.ts'

export interface WorkerConfig {
  readonly redis: string
  readonly mysql: string
  readonly prefix: string
  readonly drainGraceMs: number
}

interface OfTurn {
  readonly session: string
  readonly seq: number
  readonly attempt: number
}

export type Ended = 'completed' | 'stopped' | 'handed over' | 'retrying' | 'failed' | 'lost'

/** What a worker reports. */
export type Report =
  | { readonly is: 'ready'; readonly process: string }
  | ({ readonly is: 'started' } & OfTurn)
  | ({ readonly is: 'word'; readonly word: string } & OfTurn)
  | ({ readonly is: 'tool'; readonly tool: ToolName; readonly fresh: boolean } & OfTurn)
  | ({ readonly is: 'ended'; readonly how: Ended } & Pick<OfTurn, 'session' | 'seq'>)
  | { readonly is: 'verdict'; readonly process: string }
  | { readonly is: 'trouble'; readonly text: string }

/** Of six sessions: nobody can have them all, and any two workers can. */
const CONCURRENCY = 4

async function main(config: WorkerConfig): Promise<void> {
  const report = (what: Report) => void process.send?.(what)
  const tools = openTools(config)
  const agent = createAgent(tools, {
    said: ({ sessionId: session, message: { seq }, attempt }, word) =>
      report({ is: 'word', session, seq, attempt, word }),
    used: ({ sessionId: session, message: { seq }, attempt }, tool, fresh) =>
      report({ is: 'tool', session, seq, attempt, tool, fresh }),
  })
  const worker = createWorker({ ...config, concurrency: CONCURRENCY, logger: false, handler: agent })
  worker.on('turn.started', ({ session, seq, attempt }) => report({ is: 'started', session, seq, attempt }))
  const ended = (how: Ended) => (turn: { session: string; seq: number }) =>
    report({ is: 'ended', how, session: turn.session, seq: turn.seq })
  worker.on('turn.completed', ended('completed'))
  worker.on('turn.stopped', ended('stopped'))
  worker.on('turn.handedOver', ended('handed over'))
  worker.on('turn.retrying', ended('retrying'))
  worker.on('turn.failed', ended('failed'))
  worker.on('turn.lost', ended('lost'))
  worker.on('process.dead', (dead) => report({ is: 'verdict', process: dead.process }))
  worker.on('background.error', ({ where, error }) =>
    report({ is: 'trouble', text: `${where}: ${String(error)}` }),
  )
  await worker.start()
  process.on('SIGINT', () => undefined) // the terminal sends it to everybody; the parent decides
  process.once('SIGTERM', () => void worker.stop())
  process.once('disconnect', () => process.exit(1))
  report({ is: 'ready', process: worker.processId })
  await worker.ended
  await tools.close()
  process.exit(0)
}

await main(JSON.parse(process.argv[2] ?? '') as WorkerConfig)
