// Loaded before a worker: its wall clock is wrong by JUMP_MS from the start, and right and wrong in turns with every
// SIGUSR2. The monotonic clock is left alone.
const RealDate = Date
const jumpMs = Number(process.env.JUMP_MS ?? 0)
let wrong = true

class ShiftedDate extends RealDate {
  constructor(...given: unknown[]) {
    if (given.length === 0) super(ShiftedDate.now())
    else super(...(given as [number]))
  }

  static override now(): number {
    return RealDate.now() + (wrong ? jumpMs : 0)
  }
}

globalThis.Date = ShiftedDate as DateConstructor
process.on('SIGUSR2', () => (wrong = !wrong))
