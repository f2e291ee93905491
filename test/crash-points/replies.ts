// Cuts what a server sends into whole replies, so that "the n-th reply" means the same however TCP delivers it: RESP
// frames of Redis (notices of subscriptions too), and of MySQL the complete answer to one request, all its results.

export type Store = 'redis' | 'mysql'

/** The end of the first whole reply, or -1 while some of it is missing. */
type EndOf = (bytes: Buffer) => number

/** The replies of one connection. */
export class Replies {
  readonly #endOf: EndOf
  #rest: Buffer = Buffer.alloc(0)

  constructor(store: Store) {
    this.#endOf = store === 'redis' ? (bytes) => frame(bytes, 0) : mysqlAnswers()
  }

  /** What has become complete with this chunk, in order. */
  push(chunk: Buffer): Buffer[] {
    const whole: Buffer[] = []
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    for (let end = this.#endOf(this.#rest); end > 0; end = this.#endOf(this.#rest)) {
      whole.push(this.#rest.subarray(0, end))
      this.#rest = this.#rest.subarray(end)
    }
    return whole
  }
}

const code = (text: string) => text.charCodeAt(0)
const BULK = Array.from('$!=', code)
const LISTS = Array.from('*~>', code)
const MAP = code('%')

/** Where the frame that begins at `from` ends. */
function frame(bytes: Buffer, from: number): number {
  const line = from < bytes.length ? bytes.indexOf('\r\n', from) + 2 : 1
  if (line === 1) return -1
  const type = bytes[from] ?? 0
  const length = () => Number(bytes.toString('latin1', from + 1, line - 2))
  if (BULK.includes(type)) {
    const end = length() < 0 ? line : line + length() + 2
    return end > bytes.length ? -1 : end
  }
  const elements = LISTS.includes(type) ? length() : type === MAP ? length() * 2 : 0
  let end = line
  for (let element = 0; element < elements && end > 0; element++) end = frame(bytes, end)
  return end
}

const OK = 0x00
const EOF = 0xfe
const ERROR = 0xff
const EOF_LENGTH_MAX = 9
const MORE_RESULTS = 8

/** Before a connection is admitted each packet is a reply; from then on, everything up to the last result. */
function mysqlAnswers(): EndOf {
  let admitted = false
  return (bytes) => {
    const packets = packetsOf(bytes)
    if (admitted) return answer(packets)
    const [first] = packets
    if (first?.body[0] === OK) admitted = true
    return first?.end ?? -1
  }
}

interface Packet {
  readonly body: Buffer
  readonly end: number
}

function packetsOf(bytes: Buffer): Packet[] {
  const packets: Packet[] = []
  for (let at = 0; at + 4 <= bytes.length;) {
    const end = at + 4 + bytes.readUIntLE(at, 3)
    if (end > bytes.length) break
    packets.push({ body: bytes.subarray(at + 4, end), end })
    at = end
  }
  return packets
}

function answer(packets: readonly Packet[]): number {
  let part: 'first' | 'columns' | 'rows' = 'first'
  for (const { body, end } of packets) {
    const first = body[0] ?? OK
    if (first === ERROR) return end
    const isEof = first === EOF && body.length < EOF_LENGTH_MAX
    const isOk = part === 'first' && first === OK
    if (isOk || (isEof && part === 'rows')) {
      const status = isOk ? body.readUInt16LE(afterNumber(body, afterNumber(body, 1))) : body.readUInt16LE(3)
      if ((status & MORE_RESULTS) === 0) return end
      part = 'first'
    } else if (part === 'first') part = 'columns'
    else if (isEof) part = 'rows'
  }
  return -1
}

/** Skips a number of variable length. */
function afterNumber(body: Buffer, at: number): number {
  const first = body[at] ?? 0
  return at + (first < 0xfb ? 1 : first === 0xfc ? 3 : first === 0xfd ? 4 : 9)
}
