'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, it } = require('node:test');

const HERE = path.dirname(__dirname);
const TSC = path.join(HERE, 'node_modules', 'typescript', 'bin', 'tsc');
const VERSIONS = ['8.11.0', '8.23.1']; // of pg: the oldest that the package takes, and the newest

let folder;

before(() => { folder = fs.mkdtempSync(path.join(os.tmpdir(), 'pg-herald-')); });
after(() => fs.rmSync(folder, { recursive: true }));

const run = (program, ...parameters) => execFileSync(program, parameters,
  { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

const CHECK = `
  if (typeof Consumer !== 'function' || typeof createStore !== 'function') throw new Error('something is missing');
  new Consumer({}).start().catch((error) => console.log(error instanceof ConfigurationError && error.name, '-', error.message));`;

it('the archive has what is needed, and can be installed, imported and required', () => {
  const [{ filename, files }] = JSON.parse(run('npm', 'pack', HERE, '--json'));
  const names = files.map((file) => file.path);
  for (const wanted of ['package.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'lib/index.js', 'lib/index.mjs', 'lib/index.d.ts',
    'lib/index.d.mts']) {
    assert.ok(names.includes(wanted), wanted);
  }
  assert.deepEqual(names.filter((name) => /test|conformance|node_modules/.test(name)), []);
  fs.writeFileSync(path.join(folder, 'package.json'), '{"private": true}');
  fs.writeFileSync(path.join(folder, 'required.cjs'),
    `const { Consumer, ConfigurationError, createStore } = require('pg-herald');${CHECK}`);
  fs.writeFileSync(path.join(folder, 'imported.mjs'),
    `import { Consumer, ConfigurationError, createStore } from 'pg-herald';${CHECK}`);
  fs.writeFileSync(path.join(folder, 'both.mjs'), `import * as imported from 'pg-herald';
    import { createRequire } from 'node:module';
    const required = createRequire(import.meta.url)('pg-herald');
    for (const name of Object.keys(required)) if (imported[name] !== required[name]) throw new Error(name);
    console.log(Object.keys(required).length);`);
  for (const version of VERSIONS) {
    run('npm', 'install', '--no-save', '--no-package-lock', `./${filename}`, `pg@${version}`);
    for (const name of ['required.cjs', 'imported.mjs']) {
      assert.equal(run('node', name).trim(), 'ConfigurationError - channels is not a list of channels');
    }
    assert.equal(run('node', 'both.mjs').trim(), '11');
  }
});

it('the types are right', () => {
  const use = fs.readFileSync(path.join(__dirname, 'types.ts'), 'utf8');
  const types = path.join(folder, 'types');
  const modules = path.join(types, 'node_modules');
  fs.mkdirSync(modules, { recursive: true });
  fs.symlinkSync(HERE, path.join(modules, 'pg-herald'));
  const ours = path.join(HERE, 'node_modules');
  for (const name of fs.readdirSync(ours)) fs.symlinkSync(path.join(ours, name), path.join(modules, name));
  for (const extension of ['mts', 'cts']) fs.writeFileSync(path.join(types, `use.${extension}`), use);
  const options = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--module', 'nodenext', '--target', 'es2022', '--types', 'node'];
  execFileSync(process.execPath, [TSC, ...options, 'use.mts', 'use.cts'], { cwd: types, stdio: ['ignore', 2, 2] });
});

it('the changelog has the version', () => {
  const { version } = require('../package.json');
  assert.match(fs.readFileSync(path.join(HERE, 'CHANGELOG.md'), 'utf8'), new RegExp(`^## ${version}\\b`, 'm'));
});
