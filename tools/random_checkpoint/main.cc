// random_checkpoint <0.1b|1.1b|qwen3-0.6b|llama-3-8b> <dir>: writes a bf16 checkpoint of that
// shape.
#include <cstdio>

#include "nlohmann/json.hpp"
#include "tools/random_checkpoint/random_checkpoint.h"

int main(int argc, char** argv) {
  const nlohmann::json config = argc == 3 ? skein::tools::NamedConfig(argv[1]) : nlohmann::json();
  if (config.is_null()) {
    std::fprintf(stderr, "usage: random_checkpoint <0.1b|1.1b|qwen3-0.6b|llama-3-8b> <dir>\n");
    return 2;
  }
  const absl::Status written = skein::tools::WriteRandomCheckpoint(argv[2], config, {});
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return written.ok() ? 0 : 1;
}
