// As many instances, requests and long prompts as in Dynamo's issue 13088, where 36 of 1,536
// requests hung, in virtual time:
//   bazel run --config=opt //tests/sim:many
//   bazel run //tests/sim:many -- PREFILL DECODE CLIENTS REQUESTS PROMPT_TOKENS
// Prints how many requests hung. Exits with 1 if one did, or an invariant was violated.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/sim/many_worlds.h"
#include "tests/sim/world.h"

int main(int argc, char** argv) {
  skein::sim::ManyShape shape;
  int* const numbers[] = {&shape.prefill, &shape.decode, &shape.clients, &shape.requests,
                          &shape.prompt_tokens};
  bool good = argc == 1 || argc == 6;
  for (int i = 1; good && i < argc; ++i) {
    *numbers[i - 1] = std::atoi(argv[i]);
    good = *numbers[i - 1] > 0;
  }
  if (!good) {
    std::fprintf(stderr, "many: no arguments, or PREFILL DECODE CLIENTS REQUESTS PROMPT_TOKENS\n");
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  const skein::sim::Outcome outcome =
      skein::sim::World(skein::sim::MakeManyScenario(shape), /*print_trace=*/false).Run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf(
      "%d prefill and %d decode instances, %d clients, %d requests with prompts of %d tokens: %lld "
      "hung; %lld finished, %llu events, %.1f virtual s with a request in flight, %.1f s%s%s\n",
      shape.prefill, shape.decode, shape.clients, shape.requests, shape.prompt_tokens,
      static_cast<long long>(outcome.requests - outcome.finished),
      static_cast<long long>(outcome.finished), static_cast<unsigned long long>(outcome.actions),
      static_cast<double>(outcome.in_flight_us) * 1e-6, took.count(),
      outcome.violation.empty() ? "" : "; ", outcome.violation.c_str());
  return outcome.violation.empty() && outcome.finished == outcome.requests ? 0 : 1;
}
