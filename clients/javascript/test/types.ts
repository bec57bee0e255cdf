// A use of everything, which the compiler checks: package.test.js.
import { Consumer, createStore, HandlerError, HeraldError, type Notification, type Options, type OwnStoreOptions } from 'pg-herald';

const consumer = new Consumer({
  connection: 'postgresql://a,b/shop',
  workConnection: [{ host: 'a,b', port: '1,2', ssl: true }, 'postgresql://c/shop'],
  name: 'billing',
  channels: ['orders'],
  async handle(batch, transaction, { signal }) {
    signal.throwIfAborted();
    for (const { channel, payload } of batch) await transaction.query<{ id: string }>('SELECT $1, $2', [channel, payload]);
  },
  async state(reason, transaction) {
    if (reason === 'gone') await transaction.query('SELECT 1');
  },
  poison: async (notification: Notification, error, transaction) => {
    await transaction.query('SELECT $1, $2', [notification.payload, String(error)]);
    return 'skip';
  },
  backoff: { first: 10 },
  logger: console,
});
consumer
  .on('listening', ({ server, resumed, stock, time }) => console.log(server.length, resumed === stock, time.getTime()))
  .on('handled', ({ count, position }) => console.log(count + 1, position?.length))
  .on('disconnected', ({ pause }) => console.log(pause + 1))
  .on('stopped', ({ error }) => console.log(error?.cause))
  .on('error', (error) => { if (error instanceof HandlerError) console.log(error.notification?.payload); });
const begun: Promise<void> = consumer.start();
begun.then(() => consumer.stop()).catch((error: unknown) => console.log(error instanceof HeraldError));

const own: OwnStoreOptions = {
  name: 'billing',
  channels: ['orders'],
  store: { load: async () => null, save: async (position) => { console.log(position.length); } },
  handle(batch, transaction) {
    const none: undefined = transaction;
    console.log(batch.length, none);
  },
};
const shared: Options = { shared: true, channels: ['prices'], handle: (batch) => console.log(batch.length), logger: null };
new Consumer(own);
new Consumer(shared);
createStore({ connection: process.env['URI'], table: 'app.herald_consumer' }).then(() => {});

// @ts-expect-error a name is needed
new Consumer({ channels: ['orders'], handle() {} });
// @ts-expect-error shared consumers have none
new Consumer({ shared: true, name: 'billing', channels: ['orders'], handle() {} });
// @ts-expect-error poison decides
new Consumer({ name: 'billing', channels: ['orders'], handle() {}, poison: async () => true });
// @ts-expect-error no such event
consumer.on('handeld', () => {});
