// Node: the informer of @kubernetes/client-node 1.x or 2.x, and `fetch` reading the stream, as they are.
//
// Takes the package, and what its clients are called. Each line of the output is a JSON object, as
// in ../python/telling.py. Ends by SIGTERM.

const [package_, name] = process.argv.slice(2);
const { CustomObjectsApi, KubeConfig, makeInformer } = await import(package_);

const PATH = '/apis/nodus.dev/v1/attempts';
const WATCH_SECONDS = 3;
const PAUSE = 500; // milliseconds before an informer that failed is started again

const tell = (client, said) => process.stdout.write(JSON.stringify({ client, ...said }) + '\n');
const stores = [];

const config = new KubeConfig();
config.loadFromFile(process.env.KUBECONFIG);

function tellEvent(client, event, { metadata }) {
  tell(client, { event, uid: metadata.uid ?? '', name: metadata.name ?? '', rv: metadata.resourceVersion });
}

// The informer has no timeout of its own to give: the path brings one along, where asked for.
function inform(client, query) {
  const api = config.makeApiClient(CustomObjectsApi);
  let kind = 'state';
  const list = async () => {
    tell(client, { stream: kind });
    kind = 'relist';
    return await api.listClusterCustomObject({ group: 'nodus.dev', version: 'v1', plural: 'attempts' });
  };
  const informer = makeInformer(config, PATH + query, list);
  informer.on('add', (obj) => tellEvent(client, 'ADDED', obj));
  informer.on('update', (obj) => tellEvent(client, 'MODIFIED', obj));
  informer.on('delete', (obj) => tellEvent(client, 'DELETED', obj));
  informer.on('connect', () => tell(client, { connects: true }));
  informer.on('error', (error) => {
    tell(client, { error: String(error) });
    setTimeout(() => informer.start(), PAUSE);
  });
  informer.start().then(() => tell(client, { ready: true }));
  stores.push(() => tell(client, { store: informer.list() }));
}

async function* lines(body) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of body) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = parts.pop();
    yield* parts;
  }
  if (rest !== '') throw new Error(`a line without its end: ${rest}`);
}

async function follow(client) {
  const { server } = config.getCurrentCluster();
  const headers = { Authorization: `Bearer ${config.getCurrentUser().token}` };
  const seen = new Map();
  let version = '';
  stores.push(() => tell(client, { store: [...seen.values()] }));
  for (;;) {
    const options = new URLSearchParams({ watch: '1', timeoutSeconds: WATCH_SECONDS, allowWatchBookmarks: '1' });
    if (version) options.set('resourceVersion', version);
    tell(client, version ? { stream: 'resume', from: version } : { stream: 'state' });
    try {
      const answer = await fetch(`${server}${PATH}?${options}`, { headers });
      if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
      for await (const line of lines(answer.body)) {
        const { type, object } = JSON.parse(line);
        if (type === 'ERROR') throw new Error(line);
        if (type === 'DELETED') seen.delete(object.metadata.uid);
        else if (type !== 'BOOKMARK') seen.set(object.metadata.uid, object);
        if (!version) tell(client, { ready: true });
        version = object.metadata.resourceVersion;
        tellEvent(client, type, object);
      }
    } catch (error) {
      tell(client, { error: `${error} ${error.cause ?? ''}` });
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}

process.on('SIGTERM', () => {
  for (const store of stores) store();
  process.stdout.write('', () => process.exit(0)); // not before all of it is written
});

inform(`${name}-informer`, `?timeoutSeconds=${WATCH_SECONDS}`);
inform(`${name}-informer-on`, '');
follow(`${name}-fetch`);
