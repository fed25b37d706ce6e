// One rank that shares weights as a process of its own, for shared_process_test: shared_rank
// MODEL_DIR. Commands on stdin, one answer a line on stdout.
//   offer RANK RANKS            the offer's names in hex, or a status code
//   enter EPOCH MODE OFFER…     OK or a status code; MODE is was or cas
//   switch EPOCH MODE
//   leave EPOCH
//   strike WHERE COUNT SIGNAL   this process sends itself the signal before the COUNTth product of
//                               its steps (WHERE = step), or of those that it makes for others
//                               (serve)
//   score                       parity_text.h's NLL, in all and by sequence
//   greedy                      parity_text.h's token ids
//   decode SEED TOKENS          token ids after a prompt of the seed's
//   memory                      Pss, private and anonymous KiB of this process, and the budget's
//                               free bytes
//   counts                      bytes from owners, from the file; calls given up, rows served
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/device/cpu_device.h"
#include "engine/device/memory_budget.h"
#include "engine/model/model_engine.h"
#include "engine/model/sharing/testing/watched_ops.h"
#include "engine/model/sharing/weight_sharing.h"
#include "engine/model/testing/parity_text.h"
#include "engine/model/testing/sequence_runner.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kBudget = size_t{400} << 20;

// Sends this process a signal before a product.
class Strike {
 public:
  void Set(int64_t count, int signal) {
    signal_ = signal;
    left_ = count;
  }
  void Note() {
    if (left_ > 0 && --left_ == 0) kill(getpid(), signal_);
  }

 private:
  std::atomic<int64_t> left_ = 0;
  std::atomic<int> signal_ = 0;
};

class Rank {
 public:
  explicit Rank(const std::string& model_dir) : budget_(std::make_shared<MemoryBudget>(kBudget)) {
    SharingOptions sharing;
    sharing.budget = budget_;
    sharing.answer_max = std::chrono::milliseconds(300);
    sharing.make_serving_ops = [this] { return MakeOps(&serving_); };
    sharing_ = std::make_shared<WeightSharing>(sharing);
    ModelEngineOptions options = ParityPool();
    options.weights_device = MakeBudgetedDevice(MakeCpuDevice(), budget_);
    options.sharing = sharing_;
    auto engine = MakeModelEngine(model_dir, MakeOps(&stepping_),
                                  MakeBudgetedDevice(MakeCpuDevice(), budget_), options);
    SKEIN_CHECK_MSG(engine.ok(), engine.status().ToString().c_str());
    engine_ = *std::move(engine);
  }

  std::string Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "offer") return Offer(words);
    if (command == "enter") return Enter(words);
    if (command == "switch") return SwitchTo(words);
    if (command == "leave") return Leave(words);
    if (command == "strike") return SetStrike(words);
    if (command == "score") return Line(ParityScores(*engine_, EvalText(kParityTextTokens)));
    if (command == "greedy") return Line(ParityGreedy(*engine_));
    if (command == "decode") return Decode(words);
    if (command == "memory") return Memory();
    return Counts();
  }

 private:
  static std::unique_ptr<Ops> MakeOps(Strike* strike) {
    auto ops = MakeCpuOps({.threads = 1, .reproducible = true});
    SKEIN_CHECK(ops.ok());
    return std::make_unique<WatchedOps>(*std::move(ops), [strike](int64_t) { strike->Note(); });
  }

  template <typename Number>
  static std::string Line(const std::vector<Number>& numbers) {
    std::ostringstream line;
    line.precision(17);
    for (const Number& number : numbers) line << number << " ";
    return line.str();
  }
  static std::string CodeOf(const absl::Status& status) {
    if (!status.ok()) std::cerr << "rank: " << status << std::endl;
    return absl::StatusCodeToString(status.code());
  }
  static SharedMode ModeOf(const std::string& word) {
    return word == "cas" ? SharedMode::kCompute : SharedMode::kWeights;
  }

  std::string Offer(std::istringstream& words) {
    int rank = 0, ranks = 0;
    words >> rank >> ranks;
    const auto offer = sharing_->Offer(rank, ranks);
    if (!offer.ok()) return CodeOf(offer.status());
    const auto hex = [](const std::string& s) { return absl::BytesToHexString(s); };
    return absl::StrCat(offer->rank, ",", offer->ranks, ",", offer->model_hash, ",",
                        hex(offer->process), ",", hex(offer->layers), ",", hex(offer->calls), ",",
                        hex(offer->wire));
  }

  std::string Enter(std::istringstream& words) {
    uint64_t epoch = 0;
    std::string mode;
    words >> epoch >> mode;
    std::vector<SharingOffer> offers;
    for (std::string word; words >> word;) {
      const std::vector<std::string> parts = absl::StrSplit(word, ',');
      const auto text = [&](size_t i) { return absl::HexStringToBytes(parts.at(i)); };
      offers.push_back({.rank = std::stoi(parts.at(0)),
                        .ranks = std::stoi(parts.at(1)),
                        .model_hash = parts.at(2),
                        .process = text(3),
                        .layers = text(4),
                        .calls = text(5),
                        .wire = text(6)});
    }
    return CodeOf(sharing_->Enter(epoch, offers, ModeOf(mode)));
  }

  std::string SwitchTo(std::istringstream& words) {
    uint64_t epoch = 0;
    std::string mode;
    words >> epoch >> mode;
    return CodeOf(sharing_->SwitchTo(epoch, ModeOf(mode)));
  }

  std::string Leave(std::istringstream& words) {
    uint64_t epoch = 0;
    words >> epoch;
    return CodeOf(sharing_->Leave(epoch));
  }

  std::string SetStrike(std::istringstream& words) {
    std::string where;
    int64_t count = 0;
    int signal = 0;
    words >> where >> count >> signal;
    (where == "serve" ? serving_ : stepping_).Set(count, signal);
    return "OK";
  }

  std::string Decode(std::istringstream& words) {
    int32_t id = 0;
    GreedyRun run;
    words >> id >> run.tokens_wanted;
    for (int i = 0; i < 12; ++i) {
      run.prompt.push_back(id = (id * 31 + 7) % engine_->Spec().vocab_size);
    }
    RunTogether(*engine_, {&run});
    return Line(run.output);
  }

  std::string Memory() const {
    int64_t pss = 0, own = 0, anonymous = 0;
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name;
      int64_t kib = 0;
      if (!(words >> name >> kib)) continue;
      if (name == "Pss:") pss = kib;
      if (name == "Private_Clean:" || name == "Private_Dirty:") own += kib;
      if (name == "Anonymous:") anonymous = kib;
    }
    return absl::StrCat(pss, " ", own, " ", anonymous, " ", budget_->Use().free_bytes);
  }

  std::string Counts() const {
    int64_t owners = 0, file = 0, served = 0;
    for (const auto& bytes : sharing_->read_counts()->from_owner) owners += bytes;
    for (const auto& bytes : sharing_->read_counts()->from_file) file += bytes;
    for (const auto& rows : sharing_->call_counts()->rows_served) served += rows;
    return absl::StrCat(owners, " ", file, " ", sharing_->call_counts()->given_up.load(), " ",
                        served);
  }

  Strike stepping_, serving_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::shared_ptr<WeightSharing> sharing_;
  std::unique_ptr<Engine> engine_;
};

int Main(const std::string& model_dir) {
  Rank rank(model_dir);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << rank.Answer(line) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return argc == 2 ? skein::engine::Main(argv[1]) : 2;
}
