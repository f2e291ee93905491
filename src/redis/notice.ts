/** The text of notifications; see `wake.ts`. */

export const wakeNotice = (ids: readonly string[]): string => `wake ${ids.join(' ')}`

/** To whoever watches a session: its row has changed. */
export const LOOK = 'look'
