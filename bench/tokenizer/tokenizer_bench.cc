// Loading, encoding and decoding with the tokenizer of a folder.
//   bazel run --config=opt //bench/tokenizer -- MODEL_DIR TEXT_FILE [google-benchmark's flags]
#include <benchmark/benchmark.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/stream_decoder.h"
#include "engine/tokenizer/tokenizer.h"

namespace {

using skein::engine::StreamDecoder;
using skein::engine::Tokenizer;

struct Setup {
  std::string model_dir;
  std::string text;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<int32_t> ids;
};
Setup* setup = nullptr;

void CountText(benchmark::State& state, double tokens) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * setup->text.size()));
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations()) * tokens,
                                                  benchmark::Counter::kIsRate);
}

void BM_Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(setup->model_dir));
}

void BM_Encode(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(setup->tokenizer->Encode(setup->text));
  CountText(state, static_cast<double>(setup->ids.size()));
}

void BM_Decode(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(setup->tokenizer->Decode(setup->ids, true));
  CountText(state, static_cast<double>(setup->ids.size()));
}

void BM_Stream(benchmark::State& state) {
  for (auto _ : state) {
    StreamDecoder stream(*setup->tokenizer);
    for (const int32_t id : setup->ids) benchmark::DoNotOptimize(stream.Push(id));
  }
  CountText(state, static_cast<double>(setup->ids.size()));
}

BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Encode)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Decode)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Stream)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer MODEL_DIR TEXT_FILE\n");
    return 2;
  }
  std::ifstream in(argv[2], std::ios::binary);
  Setup prepared{argv[1], {std::istreambuf_iterator<char>(in), {}}, nullptr, {}};
  auto tokenizer = Tokenizer::Load(prepared.model_dir);
  if (!tokenizer.ok() || prepared.text.empty()) {
    std::fprintf(stderr, "%s\n",
                 tokenizer.ok() ? "no text" : tokenizer.status().ToString().c_str());
    return 1;
  }
  prepared.tokenizer = *std::move(tokenizer);
  prepared.ids = prepared.tokenizer->Encode(prepared.text);
  setup = &prepared;
  std::printf("%zu bytes, %zu tokens\n", prepared.text.size(), prepared.ids.size());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
