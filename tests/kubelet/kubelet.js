// kubelet.js FOLDER - a kubelet for tests, below FOLDER. Commands come on stdin and answers go to stdout, a line of JSON each;
// what happens by itself is told as {"event": ...}.
//
// As the real one it calls a device plug-in back, and waits for its list, before it answers Register; and it removes all
// sockets in device-plugins when it starts.
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const folder = process.argv[2];
const options = {keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true};
const load = name => grpc.loadPackageDefinition(loader.loadSync(path.join(__dirname, name), options));
const plugins = load('deviceplugin.proto').v1beta1;
const dra = load('dra.proto').k8s.io.kubelet.pkg.apis.dra.v1;
const registration = load('pluginregistration.proto').pluginregistration;
const health = load('drahealth.proto').v1alpha1;
const podresources = load('podresources.proto').v1;

const pluginFolder = path.join(folder, 'device-plugins');
const insecure = grpc.credentials.createInsecure();
const say = object => process.stdout.write(JSON.stringify(object) + '\n');
const unix = socket => 'unix://' + socket;
let pods = [];
let refusal = null;
let isSilent = false; // the next registration is not answered
let devicePlugin = null;
let draPlugin = null;
let servers = [];

function call(client, method, message, deadline = 20) {
    return new Promise((resolve, reject) => client[method](message, {deadline: Date.now() + deadline * 1000},
        (error, answer) => error ? reject(error) : resolve(answer)));
}

// A stream of lists; the first one settles the promise.
function watch(client) {
    return new Promise((resolve, reject) => {
        const stream = client.ListAndWatch({});
        stream.on('data', list => {
            say({event: 'devices', devices: list.devices});
            resolve();
        });
        stream.on('error', error => {
            say({event: 'watch ended', code: error.code, details: error.details});
            reject(error);
        });
        stream.on('end', () => say({event: 'watch ended', code: 0}));
    });
}

async function register(request, answer) {
    if (refusal) {
        answer({code: grpc.status.INVALID_ARGUMENT, details: refusal});
        return;
    }
    try {
        const client = new plugins.DevicePlugin(unix(path.join(pluginFolder, request.request.endpoint)), insecure);
        const told = await call(client, 'GetDevicePluginOptions', {});
        await watch(client);
        devicePlugin = client;
        if (isSilent) {
            isSilent = false;
            return;
        }
        answer(null, {});
        say({event: 'registered', request: request.request, options: told});
    } catch (error) {
        answer({code: grpc.status.INTERNAL, details: String(error)});
    }
}

function serve(socket, service, methods) {
    return new Promise((resolve, reject) => {
        const server = new grpc.Server();
        fs.rmSync(socket, {force: true});
        server.addService(service, methods);
        server.bindAsync(unix(socket), grpc.ServerCredentials.createInsecure(),
            error => error ? reject(error) : resolve(server));
        servers.push(server);
    });
}

async function start() {
    for (const name of fs.readdirSync(pluginFolder))
        fs.rmSync(path.join(pluginFolder, name));
    await serve(path.join(pluginFolder, 'kubelet.sock'), plugins.Registration.service, {Register: register});
    await serve(path.join(folder, 'pod-resources', 'kubelet.sock'), podresources.PodResourcesLister.service,
        {List: (request, answer) => answer(null, {pod_resources: pods})});
}

async function greet(name) {
    const client = new registration.Registration(unix(path.join(folder, 'plugins_registry', name)), insecure);
    const info = await call(client, 'GetInfo', {});
    draPlugin = new dra.DRAPlugin(unix(info.endpoint), insecure);
    if (info.supported_versions.includes('v1alpha1.DRAResourceHealth')) {
        const stream = new health.DRAResourceHealth(unix(info.endpoint), insecure).NodeWatchResources({});
        stream.on('data', list => say({event: 'health', devices: list.devices}));
        stream.on('error', () => {});
    }
    await call(client, 'NotifyRegistrationStatus', {plugin_registered: true, error: ''});
    client.close();
    return info;
}

const commands = {
    allocate: words => call(devicePlugin, 'Allocate',
        {container_requests: words.containers.map(devices_ids => ({devices_ids}))}),
    prefer: words => call(devicePlugin, 'GetPreferredAllocation', {container_requests: [{
        available_deviceIDs: words.available, must_include_deviceIDs: words.must || [], allocation_size: words.count}]}),
    unknown: () => call(devicePlugin, 'NotThere', {}),
    prepare: words => call(draPlugin, 'NodePrepareResources', {claims: words.claims}, words.deadline),
    unprepare: words => call(draPlugin, 'NodeUnprepareResources', {claims: words.claims}),
    greet: words => greet(words.name),
    pods: words => { pods = words.pods; return {}; },
    rival: words => serve(path.join(pluginFolder, words.name), plugins.DevicePlugin.service, {
        GetDevicePluginOptions: (request, answer) => answer(null, {}),
        ListAndWatch: stream => stream.write({devices: words.devices.map(ID => ({ID, health: 'Healthy'}))}),
        GetPreferredAllocation: (request, answer) => answer(null, {}),
        Allocate: (request, answer) => answer(null, {}),
        PreStartContainer: (request, answer) => answer(null, {}),
        NotThere: (request, answer) => answer(null, {}),
    }).then(() => ({})),
    refuse: words => { refusal = words.why; return {}; },
    silent: () => { isSilent = true; return {}; },
    // Connections of before may be noticed to end later than the sockets that come and go.
    restart: async words => {
        if (!words.keeps_connections) {
            servers.forEach(server => server.forceShutdown());
            servers = [];
        }
        await start();
        return {};
    },
};

async function main() {
    for (const name of ['device-plugins', 'plugins_registry', 'plugins', 'pod-resources'])
        fs.mkdirSync(path.join(folder, name), {recursive: true});
    await start();
    say({event: 'ready'});
    for await (const line of readline.createInterface({input: process.stdin})) {
        const words = JSON.parse(line);
        try {
            say({answer: await commands[words.do](words)});
        } catch (error) {
            say({error: error.details || String(error), code: error.code});
        }
    }
    process.exit(0);
}
main();
