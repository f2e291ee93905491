/** Acts on the notices that this process hears. Each is a reason to look, no more: it may be late, doubled or forged. */
import type { Dispatcher } from './dispatcher.ts'
import type { Notifier } from './notifier.ts'
import type { Reconciler } from './reconciler.ts'
import type { Registry } from './registry.ts'
import type { Renewer } from './renewer.ts'
import type { Stores } from './stores.ts'

interface Parts {
  readonly stores: Stores
  readonly notifier: Notifier
  readonly registry: Registry
  readonly renewer: Renewer
  readonly reconciler: Reconciler
  readonly dispatcher: Dispatcher
  /** Whether this process takes turns. */
  readonly serving: () => boolean
}

export class Responder {
  readonly #parts: Parts

  constructor(parts: Parts) {
    this.#parts = parts
  }

  wake(ids: readonly string[], directed: boolean): void {
    const { registry, notifier, dispatcher, serving } = this.#parts
    if (serving()) {
      for (const id of ids) registry.wake(id)
      if (directed) dispatcher.relieve()
      return
    }
    if (!directed) return
    // Meant for us alone, and we take nothing any more. What still runs here is passed on when it ends: whoever were
    // woken for it now would find our lock and send it straight back.
    const [running, others] = [new Set<string>(), new Set<string>()]
    for (const id of ids) (registry.get(id)?.phase === 'serving' ? running : others).add(id)
    for (const id of running) registry.wake(id)
    if (others.size > 0) void notifier.wakeSomebody([...others])
  }

  stop(sessionId: string): void {
    const { reconciler } = this.#parts
    reconciler.heedStop(sessionId).catch((error: unknown) => {
      this.#trouble(sessionId, error)
      reconciler.soon()
    })
  }

  retake(sessionId: string): void {
    const { registry, renewer, reconciler } = this.#parts
    const butler = registry.get(sessionId)
    if (!butler?.hold.owned) return reconciler.soon()
    renewer.renew([butler]).catch((error: unknown) => this.#trouble(sessionId, error))
  }

  #trouble(session: string, error: unknown): void {
    this.#parts.stores.telemetry.emit('mysql.trouble', { error, session })
  }
}
