/** What to say of a session or message that does not exist. */
import { NotFoundError } from '../base/errors.ts'

export const unknownSession = (id: string): NotFoundError =>
  new NotFoundError(
    'SESSION_NOT_FOUND',
    `There is no session ${id}; a session begins with its first message.`,
  )

export const unknownMessage = (id: string, seq: number): NotFoundError =>
  new NotFoundError('MESSAGE_NOT_FOUND', `Session ${id} has no message ${seq}.`)
