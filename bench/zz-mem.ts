import { createHttpHandler, localAccess } from '/work/main/src/http/index.ts'
import { listen } from '/work/main/src/http/server.ts'
import { createClient, migrate } from '/work/main/src/index.ts'
import { startMysql, startRedis, ensureDatabase } from '/work/main/src/cli/servers.ts'
import { BareServer } from '/work/main/bench/sse.ts'
import { mkdtemp } from 'node:fs/promises'
import { spawn } from 'node:child_process'
async function main() {
const folder = await mkdtemp('/tmp/w/f-')
const [redis, mysql] = await Promise.all([startRedis({ folder }), startMysql({ folder })])
const url = new URL('/mem', mysql.url).href
await ensureDatabase(url); await migrate(url)
const client = createClient({ redis: redis.url, mysql: url, prefix: 'mem', logger: false })
await client.enqueue('first', 'x')
const handler = createHttpHandler({ client, access: localAccess(), logger: false })
const server = await listen(handler, { host: '127.0.0.1', port: 0 })
const bare = new BareServer(); const bareUrl = await bare.listen()
const mem = () => { for (let i=0;i<4;i++) globalThis.gc!(); const m = process.memoryUsage(); return { rss: m.rss/2**20, heap: m.heapUsed/2**20, ext: m.external/2**20, ab: m.arrayBuffers/2**20 } }
const readers = async (u: string, n: number) => { const c = spawn(process.execPath, ['-e', `
const {Agent,get}=require('http');const agent=new Agent({maxSockets:Infinity});let k=0;for(let i=0;i<${n};i++)get('${u}',{agent},r=>{r.on('data',()=>{});r.once('data',()=>{if(++k===${n})console.log('ok')})})`], {stdio:['ignore','pipe','inherit']}); await new Promise(r=>c.stdout!.once('data',r)); return c }
for (const [what,u] of [['bare',bareUrl],['served',server.url+'/v1/sessions/first/events'],['bare',bareUrl],['served',server.url+'/v1/sessions/first/events']] as const) {
  const one = await readers(u, 1)
  const a = mem()
  const c = await readers(u, 1000)
  await new Promise(r=>setTimeout(r,1500))
  const b = mem()
  console.log(what, Object.entries(b).map(([k,v])=>k+' '+(v-(a as any)[k]).toFixed(1)).join('  '))
  if (process.argv[2] === what) { const v8 = await import('node:v8'); v8.writeHeapSnapshot('/tmp/w/'+what+'.heapsnapshot') }
  c.kill('SIGKILL'); one.kill('SIGKILL'); await new Promise(r=>setTimeout(r,1000))
}
await server.close(0); bare.close(); await client.close(); await Promise.all([redis.stop(), mysql.stop()]); process.exit(0)
}
main()
