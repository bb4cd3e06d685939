// hear.mjs MODEL COUNT: whisper.cpp, as npm's @fugood/whisper.node has it, puts MODEL onto the card and runs its own benchmark
// COUNT times: it encodes 30 seconds, and decodes 256 words in three ways. For each it prints a line.
import {initWhisper} from "@fugood/whisper.node";

const [,, filePath, count] = process.argv;
const whisper = await initWhisper({filePath, useGpu: true}, "cuda");
for (let number = 0; number < Number(count); number++) {
    await whisper.bench(1);
    console.log(`heard ${number}`);
}
await whisper.release();
