'use strict';

const { ConfigurationError } = require('./errors.js');

const URI = /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)([^?#]*)(\?[^#]*)?/i;

// node-postgres connects to one host. As in libpq, a URI or an object may have several, with commas.

/** A list of configurations for node-postgres, each with one host, from what the user has given. */
function serversOf(connection) {
  if (Array.isArray(connection)) {
    if (connection.length === 0) throw new ConfigurationError('there is no connection in the list');
    return connection.flatMap(serversOf);
  }
  if (connection === undefined || connection === null) return fromFields({});
  if (typeof connection === 'string') return fromText(connection).map((connectionString) => ({ connectionString }));
  if (typeof connection !== 'object') throw new ConfigurationError('a connection is a URI, an object, or a list of these');
  if (connection.connectionString) {
    return fromText(connection.connectionString).map((connectionString) => ({ ...connection, connectionString }));
  }
  return fromFields(connection);
}

function fromText(text) {
  const match = URI.exec(text);
  if (!match) {
    if (/^socket:|^\//.test(text)) return [text];
    throw new ConfigurationError('a connection string begins with postgresql://, postgres://, socket: or /');
  }
  const [, scheme, user = '', hosts, path, query = ''] = match;
  const parameters = new URLSearchParams(query);
  if (parameters.has('host')) {
    return pair(parameters.get('host'), parameters.get('port') ?? '').map(([host, port]) => {
      const own = new URLSearchParams(parameters);
      own.set('host', host);
      own.delete('port');
      if (port) own.set('port', port);
      return `${scheme}${user}${hosts}${path}?${own}`;
    });
  }
  return hosts.split(',').map((host) => `${scheme}${user}${host}${path}${query}`);
}

function fromFields(fields) {
  const hosts = fields.host ?? process.env.PGHOST ?? '';
  const ports = String(fields.port ?? process.env.PGPORT ?? '');
  if (!hosts.includes(',')) return [fields];
  return pair(hosts, ports).map(([host, port]) => (port ? { ...fields, host, port: Number(port) } : { ...fields, host }));
}

// One port is for all hosts.
function pair(hosts, ports) {
  const hostList = hosts.split(',');
  const portList = ports.split(',');
  if (portList.length !== 1 && portList.length !== hostList.length) {
    throw new ConfigurationError(`there are ${hostList.length} hosts and ${portList.length} ports`);
  }
  return hostList.map((host, i) => [host, portList[portList.length === 1 ? 0 : i]]);
}

module.exports = { serversOf };
