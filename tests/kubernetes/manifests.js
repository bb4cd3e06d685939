// manifests.js render            print the plain manifests: the chart with its own values, in the namespace gpuslice
// manifests.js check FILE...     check the documents of YAML files against schemas.json; what is wrong, a line each
// manifests.js check-json        the same of one JSON document on stdin
//
// The chart keeps to the part of Helm's templates that is understood here; anything else is an error.
'use strict';
const fs = require('fs');
const path = require('path');
const YAML = require('yaml');
const Ajv = require('ajv');

const chart = path.join(__dirname, '..', '..', 'packaging', 'kubernetes', 'chart');

// --- Templates ---

function lookUp(name, context) {
    return name.slice(1).split('.').reduce((value, key) => {
        if (value === undefined || !(key in value))
            throw new Error(`the template names ${name}, which values.yaml does not have`);
        return value[key];
    }, context);
}

function evaluate(words, context) {
    const value = word => word.startsWith('(print ') ? String(lookUp(word.slice(7, -1), context))
        : word.startsWith('.') ? lookUp(word, context) : JSON.parse(word);
    if ((words[0] === 'eq' || words[0] === 'ne') && typeof value(words[1]) !== typeof value(words[2]))
        throw new Error(`'${words.join(' ')}' compares values of two types, which Helm does not`);
    if (words[0] === 'eq' || words[0] === 'ne')
        return (value(words[1]) === value(words[2])) === (words[0] === 'eq');
    if (words.length !== 1)
        throw new Error(`the template says '${words.join(' ')}', which is not known here`);
    return value(words[0]);
}

function print(text, context) {
    const block = text.match(/^toYaml (\S+) \| nindent (\d+)$/);
    if (!block)
        return String(evaluate(text.split(/\s+/), context));
    const lines = YAML.stringify(lookUp(block[1], context)).trimEnd().split('\n');
    return lines.map(line => '\n' + ' '.repeat(Number(block[2])) + line).join('');
}

// Text and actions by turns; "{{-" takes the blanks before it away, as Helm does.
function tokens(template) {
    const parts = template.split(/(\{\{-?.*?-?\}\})/s);
    for (let i = 1; i < parts.length; i += 2) {
        if (parts[i].startsWith('{{-'))
            parts[i - 1] = parts[i - 1].trimEnd();
        if (parts[i].endsWith('-}}'))
            parts[i + 1] = parts[i + 1].trimStart();
        parts[i] = {action: parts[i].replace(/^\{\{-?\s*|\s*-?\}\}$/g, '')};
    }
    return parts;
}

function render(template, context) {
    const open = [];
    let out = '';
    for (const part of tokens(template)) {
        const isShown = open.every(Boolean);
        if (typeof part === 'string')
            out += isShown ? part : '';
        else if (part.action.startsWith('if '))
            open.push(isShown && Boolean(evaluate(part.action.slice(3).match(/\([^)]*\)|\S+/g), context)));
        else if (part.action === 'else')
            open.push(!open.pop() && open.every(Boolean));
        else if (part.action === 'end')
            open.pop();
        else
            out += isShown ? print(part.action, context) : '';
    }
    return out;
}

// As Helm does before it renders.
function checkValues(values) {
    const ajv = new Ajv({allErrors: true, allowUnionTypes: true});
    if (!ajv.validate(JSON.parse(fs.readFileSync(path.join(chart, 'values.schema.json'), 'utf8')), values))
        throw new Error(ajv.errors.map(one => `${one.instancePath} ${one.message} ${JSON.stringify(one.params)}`).join('\n'));
}

function renderChart(changes) {
    const values = {...YAML.parse(fs.readFileSync(path.join(chart, 'values.yaml'), 'utf8')), ...changes};
    checkValues(values);
    const description = YAML.parse(fs.readFileSync(path.join(chart, 'Chart.yaml'), 'utf8'));
    const context = {Values: values, Release: {Namespace: 'gpuslice'}, Chart: {AppVersion: description.appVersion}};
    return ['rights', 'deviceclass', 'daemonset', 'podmonitor'].map(name => {
        const template = fs.readFileSync(path.join(chart, 'templates', name + '.yaml'), 'utf8');
        return render(template, context).trim();
    }).filter(Boolean).join('\n---\n') + '\n';
}

// --- Schemas ---

function makeChecker() {
    const schemas = JSON.parse(fs.readFileSync(path.join(__dirname, 'schemas.json'), 'utf8'));
    const ajv = new Ajv({allErrors: true, strict: true, allowUnionTypes: true});
    ajv.addSchema(schemas, 'all');
    return document => {
        const kind = `${document && document.apiVersion}/${document && document.kind}`;
        if (!(kind in schemas.definitions))
            return [`there is no schema of ${kind}`];
        const check = ajv.getSchema('all#/definitions/' + encodeURIComponent(kind.replace(/~/g, '~0').replace(/\//g, '~1')));
        return check(document) ? [] : check.errors.map(error =>
            `${kind}${error.instancePath} ${error.message} ${JSON.stringify(error.params)}`);
    };
}

function main(verb, files) {
    if (verb === 'render') {
        process.stdout.write(renderChart(JSON.parse(files[0] || '{"createNamespace": true}')));
        return 0;
    }
    const check = makeChecker();
    let wrong = [];
    if (verb === 'check-json')
        wrong = check(JSON.parse(fs.readFileSync(0, 'utf8')));
    for (const file of files)
        for (const document of YAML.parseAllDocuments(fs.readFileSync(file, 'utf8')))
            wrong.push(...document.errors.map(String), ...check(document.toJS()).map(text => `${file}: ${text}`));
    wrong.forEach(text => console.log(text));
    return wrong.length ? 1 : 0;
}
process.exitCode = main(process.argv[2], process.argv.slice(3));
