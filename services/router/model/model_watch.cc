#include "services/router/model/model_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/codec/answer.h"
#include "services/codec/durations.h"

namespace skein::services {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(500);
constexpr auto kTimeout = std::chrono::milliseconds(1000);

ModelLoad LoadOf(const v1::ModelStatus& model) {
  return {.running = static_cast<int64_t>(model.running()),
          .waiting = static_cast<int64_t>(model.waiting()),
          .kv_blocks = static_cast<int64_t>(model.kv_blocks()),
          .kv_blocks_held = static_cast<int64_t>(model.kv_blocks_held()),
          .kv_block_tokens = static_cast<int64_t>(model.kv_block_tokens())};
}

}  // namespace

CellWatch::CellWatch(Channels* channels, std::string cell)
    : calls_(channels, std::move(cell)),
      last_(absl::UnavailableError("the orchestrator has not answered yet")),
      thread_([this] { Run(); }) {}

CellWatch::~CellWatch() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void CellWatch::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    Ask();
    lock.lock();
    stop_.wait_for(lock, kInterval, [this] { return stopping_; });
  }
}

void CellWatch::Ask() {
  const auto asked = std::chrono::steady_clock::now();
  v1::ListModelsResponse response;
  const grpc::Status status = calls_.Call(&v1::Orchestrator::Stub::ListModels,
                                          v1::ListModelsRequest(), &response, kTimeout);
  std::map<std::string, Live> live;
  for (const v1::ModelStatus& model : response.models()) {
    live[model.model()] = {model.prefill_instances(), model.decode_instances(),
                           static_cast<int64_t>(model.max_positions()), LoadOf(model)};
  }
  std::lock_guard<std::mutex> lock(mutex_);
  last_ = FromGrpc(status, "orchestrator");
  if (IsTransportFailure(status) || LeaderOf(last_).has_value()) return;
  good_until_ = {};  // it has answered: that it serves nothing now, as when it drains
  if (!status.ok()) return;
  const absl::StatusOr<int64_t> lease_us =
      LeaseFrom("instance_lease_us", response.instance_lease_us());
  if (!lease_us.ok()) {
    last_ = MalformedAnswer("orchestrator", lease_us.status());
    return;
  }
  live_ = std::move(live);
  good_until_ = asked + std::chrono::microseconds(*lease_us);
}

absl::Status CellWatch::Reached() const {
  if (last_.ok() || std::chrono::steady_clock::now() < good_until_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("orchestrator ", cell(), ": ", last_.message(),
                                             ". Start it, or correct --orchestrator."));
}

std::string CellWatch::MissingOf(const std::string& model) const {
  const auto it = live_.find(model);
  const Live live = it == live_.end() ? Live{} : it->second;
  std::string missing;
  if (live.prefill == 0) missing = "prefill-worker";
  if (live.decode == 0)
    absl::StrAppend(&missing, missing.empty() ? "" : " and a ", "decode-worker");
  if (missing.empty()) return {};
  return absl::StrCat("model '", model, "' has ", live.prefill, " prefill and ", live.decode,
                      " decode instances. Start a ", missing, " for it.");
}

absl::Status CellWatch::Ready(const std::string& model) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = Reached(); !status.ok()) return status;
  const std::string missing = MissingOf(model);
  return missing.empty() ? absl::OkStatus() : absl::UnavailableError(missing);
}

int64_t CellWatch::MaxPositions(const std::string& model) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = live_.find(model);
  return it == live_.end() ? 0 : it->second.max_positions;
}

ModelLoad CellWatch::Load(const std::string& model) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = live_.find(model);
  return it == live_.end() ? ModelLoad{} : it->second.load;
}

ModelWatch::ModelWatch(Channels* channels, const std::vector<std::string>& cells,
                       std::vector<std::string> models)
    : models_(std::move(models)) {
  cells_.reserve(cells.size());
  for (const std::string& cell : cells) {
    cells_.push_back(std::make_unique<CellWatch>(channels, cell));
  }
}

absl::Status ModelWatch::Ready() const {
  std::string missing;
  for (const std::string& model : models_) {
    const absl::Status status = Ready(model);
    if (status.ok() || absl::StrContains(missing, status.message())) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : " ", status.message());
  }
  return missing.empty() ? absl::OkStatus() : absl::UnavailableError(missing);
}

absl::Status ModelWatch::Ready(const std::string& model) const {
  std::string missing;
  for (const auto& cell : cells_) {
    const absl::Status status = cell->Ready(model);
    if (status.ok()) return status;
    absl::StrAppend(&missing, missing.empty() ? "" : " ");
    if (cells_.size() > 1) absl::StrAppend(&missing, "In the cell of ", cell->cell(), ": ");
    absl::StrAppend(&missing, status.message());
  }
  return absl::UnavailableError(missing);
}

int64_t ModelWatch::MaxPositions(const std::string& model) const {
  int64_t least = 0;
  for (const auto& cell : cells_) {
    const int64_t positions = cell->MaxPositions(model);
    if (positions > 0) least = least == 0 ? positions : std::min(least, positions);
  }
  return least;
}

ModelLoad ModelWatch::Load(const std::string& model) const {
  ModelLoad all;
  for (const auto& cell : cells_) {
    const ModelLoad load = cell->Load(model);
    all.running += load.running;
    all.waiting += load.waiting;
    all.kv_blocks += load.kv_blocks;
    all.kv_blocks_held += load.kv_blocks_held;
    if (load.kv_block_tokens > 0) all.kv_block_tokens = load.kv_block_tokens;
  }
  return all;
}

}  // namespace skein::services
