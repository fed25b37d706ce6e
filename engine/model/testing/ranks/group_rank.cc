// One rank of a group as a process of its own, for GroupProcess: group_rank MODEL_DIR UCX_TLS.
// Commands on stdin, one answer a line on stdout; the first line is the fabric's address in hex.
//   join ID RANK ADDRESS…             OK or a status code
//   score SP TP DIE_AT                parity_text.h's NLL, in all and by sequence, or a status
//   code;
//                                     SP = 0: any mode, another at every step; DIE_AT ≥ 0: the
//                                     process kills itself in the middle of that step
//   greedy SP TP                      token ids, or a status code
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/comm/ucx/ucx_fabric.h"
#include "engine/device/cpu_device.h"
#include "engine/model/group/group_comms.h"
#include "engine/model/group/group_engine.h"
#include "engine/model/testing/parity_text.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/sampling/philox.h"

namespace skein::engine {
namespace {

constexpr auto kPatience = std::chrono::minutes(2);

// This rank's part of the group's steps, as an Engine. After a failed step it only pretends:
// nothing runs any more, and status() says why.
class RankEngine final : public Engine {
 public:
  RankEngine(GroupEngine* engine, const GroupComms* comms, int ranks, GroupMode mode, int die_at)
      : engine_(engine), comms_(comms), ranks_(ranks), mode_(mode), die_at_(die_at) {}

  const EngineSpec& Spec() const override { return engine_->Spec(); }
  std::span<const KvRegion> KvRegions() const override { return engine_->KvRegions(); }
  const absl::Status& status() const { return status_; }

  absl::Status Step(std::span<const SequenceStep> sequences, StepProgress*,
                    std::vector<SequenceResult>* results) override {
    results->assign(sequences.size(), {});
    if (!status_.ok()) return absl::OkStatus();
    std::vector<SequenceStep> steps(sequences.begin(), sequences.end());
    for (SequenceStep& step : steps) step.layout = KvLayout{ranks_};
    StepProgress progress([&](int layer) {
      if (step_ == die_at_ && layer == 1) kill(getpid(), SIGKILL);
    });
    const GroupPart part = comms_->Part(Mode(), std::chrono::steady_clock::now() + kPatience);
    status_ = engine_->StepTogether(part, steps, &progress, results);
    ++step_;
    if (!status_.ok()) results->assign(sequences.size(), {});
    return absl::OkStatus();
  }

  absl::Status StepTogether(const GroupPart&, std::span<const SequenceStep>, StepProgress*,
                            std::vector<SequenceResult>*) override {
    return absl::InvalidArgumentError("mode: every step is one of the group");
  }

 private:
  GroupMode Mode() const {
    if (mode_.sp > 0) return mode_;
    const std::vector<GroupMode> modes = ModesOf(ranks_);
    return modes[static_cast<size_t>(UniformSample(3, static_cast<uint64_t>(step_)) *
                                     static_cast<double>(modes.size()))];
  }

  GroupEngine* engine_;
  const GroupComms* comms_;
  int ranks_;
  GroupMode mode_;
  int die_at_;
  int step_ = 0;
  absl::Status status_;
};

class Server {
 public:
  Server(std::unique_ptr<Fabric> fabric, std::unique_ptr<GroupEngine> engine)
      : fabric_(std::move(fabric)), engine_(std::move(engine)) {}

  std::string Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    return command == "join" ? Join(words) : command == "score" ? Score(words) : Greedy(words);
  }

 private:
  static std::string CodeOf(const absl::Status& status) {
    if (!status.ok()) std::fprintf(stderr, "rank: %s\n", status.ToString().c_str());
    return absl::StatusCodeToString(status.code());
  }

  std::string Join(std::istringstream& words) {
    GroupId id;
    int rank = 0;
    words >> id.low >> rank;
    std::vector<std::string> addresses;
    for (std::string word; words >> word;) addresses.push_back(absl::HexStringToBytes(word));
    ranks_ = static_cast<int>(addresses.size());
    auto comms = GroupComms::Make(fabric_.get(), id, addresses, rank, ModesOf(ranks_));
    if (comms.ok()) comms_.emplace(*std::move(comms));
    return CodeOf(comms.status());
  }

  std::string Score(std::istringstream& words) {
    GroupMode mode;
    int die_at = -1;
    words >> mode.sp >> mode.tp >> die_at;
    RankEngine rank(engine_.get(), &*comms_, ranks_, mode, die_at);
    const std::vector<double> scores = ParityScores(rank, EvalText(kParityTextTokens));
    if (!rank.status().ok()) return CodeOf(rank.status());
    std::ostringstream answer;
    answer.precision(17);
    for (const double score : scores) answer << score << " ";
    return answer.str();
  }

  std::string Greedy(std::istringstream& words) {
    GroupMode mode;
    words >> mode.sp >> mode.tp;
    RankEngine rank(engine_.get(), &*comms_, ranks_, mode, /*die_at=*/-1);
    std::ostringstream answer;
    for (const int32_t id : ParityGreedy(rank)) answer << id << " ";
    return rank.status().ok() ? answer.str() : CodeOf(rank.status());
  }

  const std::unique_ptr<Fabric> fabric_;
  const std::unique_ptr<GroupEngine> engine_;
  std::optional<GroupComms> comms_;
  int ranks_ = 0;
};

int Main(const std::string& model_dir, const std::string& tls) {
  UcxOptions ucx;
  ucx.tls = tls;
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = MakeUcxFabric(ucx);
  auto ops = MakeCpuOps({.threads = 1, .isa = CpuIsa::kAuto});
  if (!fabric.ok() || !ops.ok()) return 1;
  auto engine = GroupEngine::Make(model_dir, *std::move(ops), MakeCpuDevice(), ParityPool(),
                                  /*ranks_max=*/8);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  std::cout << absl::BytesToHexString((*fabric)->Address()) << std::endl;
  Server server(*std::move(fabric), *std::move(engine));
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << server.Answer(line) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return argc == 3 ? skein::engine::Main(argv[1], argv[2]) : 2;
}
