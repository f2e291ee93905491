import { sql } from 'kysely'
import { connectMysql } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
const url = (d: string) => `mysql://root@127.0.0.1:23999/${d}`
const admin = connectMysql(url('mysql'))
for (let round = 0; round < 300; round++) {
  await sql`create database butler_x${sql.raw(String(round))}`.execute(admin.db)
  const fleet = Array.from({ length: 5 }, () => connectMysql(url(`butler_x${round}`), { poolSize: 2 }))
  try { await Promise.all(fleet.map(({ db }) => migrateUp(db))) } catch (e) { console.log(round, String(e)); process.exit(1) }
  await Promise.all(fleet.map((one) => one.close()))
  await sql`drop database butler_x${sql.raw(String(round))}`.execute(admin.db)
}
console.log('fine'); await admin.close()
