// One rank of prompts run in ring steps, a process of its own, for ring_process_test:
//   ring_rank MODEL_DIR INDEX UCX_TLS
// It tells its address (hexadecimal), hears all addresses in one line, and then a prompt a line:
//   GROUP TOKENS EVEN KILLED DEADLINE_MS { BLOCKS TP N MEMBER… }…
// for which it answers "OK NLL_SUM COUNT TOKEN" or a status code's name. GROUP is the first of the
// prompt's group ids, kGroupsOfChunk for each chunk. KILLED: the member that kills itself in its
// last chunk.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/model_engine.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/ranks/ring_member.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// Of all ranks, for moves, and then the tensor groups, by their first rank / tp.
constexpr uint64_t kGroupsOfChunk = 10;

struct Chunk {
  int64_t blocks = 0;
  int tp = 1;
  std::vector<int> members;
};

struct Prompt {
  uint64_t group = 0;
  int64_t tokens = 0;
  bool even = true;
  int killed = -1;
  int deadline_ms = 0;
  std::vector<Chunk> chunks;
};

Prompt ParsePrompt(const std::string& line) {
  std::istringstream words(line);
  Prompt prompt;
  words >> prompt.group >> prompt.tokens >> prompt.even >> prompt.killed >> prompt.deadline_ms;
  for (Chunk chunk; words >> chunk.blocks; prompt.chunks.push_back(chunk)) {
    size_t members = 0;
    words >> chunk.tp >> members;
    chunk.members.resize(members);
    for (int& member : chunk.members) words >> member;
  }
  return prompt;
}

class Rank {
 public:
  Rank(Engine* engine, Fabric* fabric, int index)
      : member_(engine), fabric_(fabric), index_(index) {}

  void Meet(std::vector<std::string> addresses) { addresses_ = std::move(addresses); }

  absl::Status Run(const Prompt& prompt) {
    member_.Start(EvalText(static_cast<size_t>(prompt.tokens)), /*score=*/true,
                  static_cast<uint32_t>(index_));
    PromptDealer dealer(prompt.tokens, member_.engine().Spec().kv.block_tokens, /*seed=*/1);
    for (size_t c = 0; c < prompt.chunks.size(); ++c) {
      const Chunk& chunk = prompt.chunks[c];
      const DealtPiece piece = prompt.even ? dealer.NextEven(chunk.members, chunk.blocks)
                                           : dealer.NextRandom(chunk.members, chunk.blocks);
      const bool dies = prompt.killed == index_ && c + 1 == prompt.chunks.size();
      const absl::Status ran =
          RunPiece(piece, prompt, chunk.tp, prompt.group + kGroupsOfChunk * c, dies);
      if (!ran.ok()) return ran;
    }
    return absl::OkStatus();
  }

  std::string Result() const {
    double sum = 0.0;
    for (const auto& [position, logprob] : member_.logprobs()) sum -= logprob;
    char text[100];
    std::snprintf(text, sizeof(text), "OK %.17g %zu %d", sum, member_.logprobs().size(),
                  member_.token());
    return text;
  }

 private:
  absl::Status RunPiece(const DealtPiece& piece, const Prompt& prompt, int tp, uint64_t group,
                        bool dies) {
    std::vector<std::string> addresses;
    int rank = -1;
    for (size_t r = 0; r < piece.members.size(); ++r) {
      addresses.push_back(addresses_[static_cast<size_t>(piece.members[r])]);
      if (piece.members[r] == index_) rank = static_cast<int>(r);
    }
    if (rank < 0) return absl::OkStatus();
    auto comm = fabric_->MakeGroup({1, group}, addresses, rank);
    auto moves = fabric_->MakeGroup({1, group + 1}, addresses, rank);
    if (!comm.ok()) return comm.status();
    if (!moves.ok()) return moves.status();
    RingGroups groups{comm->get(), moves->get()};
    std::unique_ptr<Communicator> tensor;
    if (tp > 1) {
      const int index = rank / tp;
      const std::vector<std::string> neighbours(addresses.begin() + index * tp,
                                                addresses.begin() + (index + 1) * tp);
      auto made =
          fabric_->MakeGroup({1, group + 2 + static_cast<uint64_t>(index)}, neighbours, rank % tp);
      if (!made.ok()) return made.status();
      tensor = *std::move(made);
      groups.tensor = tensor.get();
      groups.tp = tp;
    }
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(prompt.deadline_ms);
    return member_.Run(piece, static_cast<size_t>(rank), groups, deadline,
                       [&](int layer, StepProgress&) {
                         if (dies && layer == 1) raise(SIGKILL);
                       });
  }

  RingMember member_;
  Fabric* fabric_;
  int index_;
  std::vector<std::string> addresses_;
};

void Serve(char** argv) {
  ModelEngineOptions options;
  options.num_blocks = 200;
  options.max_batch_tokens = 2200;
  options.ring_segment_bytes = 1 << 20;
  auto engine = MakeModelEngine(argv[1], *MakeCpuOps({.threads = 1}), MakeCpuDevice(), options);
  SKEIN_CHECK_MSG(engine.ok(), engine.status().ToString().c_str());
  auto fabric = MakeUcxFabric({.tls = argv[3]});
  SKEIN_CHECK_MSG(fabric.ok(), fabric.status().ToString().c_str());
  std::cout << absl::BytesToHexString((*fabric)->Address()) << std::endl;
  Rank rank(engine->get(), fabric->get(), std::stoi(argv[2]));
  std::string line;
  std::getline(std::cin, line);
  std::istringstream words(line);
  std::vector<std::string> addresses;
  for (std::string word; words >> word;) addresses.push_back(absl::HexStringToBytes(word));
  rank.Meet(std::move(addresses));
  while (std::getline(std::cin, line)) {
    const absl::Status ran = rank.Run(ParsePrompt(line));
    std::cout << (ran.ok() ? rank.Result() : absl::StatusCodeToString(ran.code())) << std::endl;
    if (!ran.ok()) std::cerr << "rank " << argv[2] << ": " << ran << "\n";
  }
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  skein::engine::Serve(argv);
  return 0;
}
