/**
 * What is to be seen while the demo runs: on a terminal a table that is redrawn in place, with the latest news below it;
 * on a pipe plain lines as things happen.
 */
import { now, Ticker } from '../base/timing.ts'
import type { Report } from './worker-process.ts'

interface Line {
  servedBy: string
  seq: number
  attempt: number
  doing: string
  words: string
}

const REDRAW_MS = 200
const NEWS_MAX = 8
const CURSOR = { hide: '\u001b[?25l', show: '\u001b[?25h' }
const UP = (lines: number) => (lines === 0 ? '' : `\u001b[${lines}A\r\u001b[J`)

export class Board {
  readonly #out: NodeJS.WriteStream
  readonly #live: boolean
  #beganAt: number | undefined
  readonly #lines = new Map<string, Line>()
  readonly #news: string[] = []
  readonly #ticker: Ticker
  #drawn = 0

  constructor(out: NodeJS.WriteStream, sessions: readonly string[]) {
    this.#out = out
    this.#live = out.isTTY && process.env['TERM'] !== 'dumb'
    for (const session of sessions) {
      this.#lines.set(session, { servedBy: '–', seq: 0, attempt: 1, doing: 'nothing yet', words: '' })
    }
    this.#ticker = new Ticker({ tick: () => this.#draw(), intervalMs: REDRAW_MS, onError: () => undefined })
  }

  open(): void {
    if (!this.#live) return
    this.#out.write(CURSOR.hide)
    this.#ticker.start()
  }

  async close(): Promise<void> {
    if (!this.#live) return
    await this.#ticker.stop()
    this.#draw()
    this.#out.write(CURSOR.show)
    this.#drawn = 0
  }

  /** Something that everybody should know; the clock starts with the first. */
  news(text: string): void {
    this.#beganAt ??= now()
    const line = `${((now() - this.#beganAt) / 1000).toFixed(1).padStart(5)} s  ${text}`
    if (this.#live) this.#news.push(line)
    else this.#out.write(`${line}\n`)
  }

  /** What a worker reports of a session. */
  see(report: Report, worker: string): void {
    if (!('session' in report)) return
    const line = this.#lines.get(report.session)
    if (!line) return
    const about = `${report.session} #${report.seq}`
    if (report.is === 'started') {
      const again = report.attempt > 1 ? `, attempt ${report.attempt}` : ''
      Object.assign(line, { ...report, servedBy: worker, doing: 'begins', words: '' })
      this.#plain(`${about} starts on ${worker}${again}`)
    } else if (line.servedBy !== worker) {
      // A late word of an owner that was replaced.
    } else if (report.is === 'word') {
      line.doing = 'says'
      line.words = `${line.words} ${report.word}`.trimStart()
    } else if (report.is === 'tool') {
      line.doing = report.fresh ? `used ${report.tool}` : `remembers ${report.tool}`
      this.#plain(`${about} ${report.fresh ? 'used' : 'remembers what it got from'} ${report.tool}`)
    } else if (report.is === 'ended') {
      line.doing = report.how
      this.#plain(`${about} ${report.how} on ${worker}${report.how === 'completed' ? `: ${line.words}` : ''}`)
    }
  }

  /** Of every single turn: a table shows it anyway. */
  #plain(text: string): void {
    if (!this.#live) this.news(text)
  }

  #draw(): void {
    const width = this.#out.columns || 80
    const rows = [
      row('session', 'served by', 'message', 'doing'),
      ...[...this.#lines].map(([session, { servedBy, seq, attempt, doing, words }]) => {
        const tail = doing === 'says' ? `…${words.slice(-(width - 52))}` : ''
        const message = seq === 0 ? '' : `#${seq}${attempt > 1 ? ` (attempt ${attempt})` : ''}`
        return row(session, servedBy, message, `${doing} ${tail}`)
      }),
      '',
      ...this.#news.slice(-NEWS_MAX),
    ]
    const text = rows.map((line) => line.slice(0, width - 1)).join('\n')
    this.#out.write(`${UP(this.#drawn)}${text}\n`)
    this.#drawn = rows.length
  }
}

const row = (session: string, servedBy: string, message: string, doing: string): string =>
  `${session.padEnd(9)} ${servedBy.padEnd(10)} ${message.padEnd(15)} ${doing}`
