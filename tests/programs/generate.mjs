// generate.mjs MODEL TOKENS: loads a model onto the card by llama.cpp and generates, with a line for each token.
// LAYERS: how many of its layers are on the card, "max" without it; "auto": as many as llama.cpp thinks fit.
import { getLlama } from "node-llama-cpp";

const [modelPath, count] = [process.argv[2], Number(process.argv[3])];
const llama = await getLlama({ gpu: "cuda", build: "never", progressLogs: false, logLevel: "error" });
const model = await llama.loadModel({ modelPath, gpuLayers: process.env.LAYERS || "max" });
console.log(`loaded ${model.gpuLayers} layers`);
const context = await model.createContext({ contextSize: 512 });
let made = 0;
while (made < count) {
  const sequence = context.getSequence();
  for await (const token of sequence.evaluate(model.tokenize("once upon a time"), { temperature: 0 })) {
    console.log(`token ${token}`);
    if (++made >= count || made % 400 === 0) break;
  }
  await sequence.dispose();
}
await context.dispose();
await model.dispose();
await llama.dispose();
