#include "services/console/console_feed.h"

#include <algorithm>
#include <utility>

#include "proto/jobs.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ConsoleFeed::ConsoleFeed(std::vector<std::unique_ptr<LeaderCalls>>* cells, ConsolePages* pages,
                         nlohmann::json self, std::chrono::milliseconds idle_period)
    : calls_(cells),
      pages_(pages),
      self_(std::move(self)),
      idle_period_(idle_period),
      cells_(cells->size()) {
  for (size_t i = 0; i < cells_.size(); ++i) cells_[i].report.name = (*cells)[i]->cell();
  thread_ = std::thread([this] { Run(); });
}

int64_t ConsoleFeed::NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

ConsoleFeed::~ConsoleFeed() { Stop(); }

void ConsoleFeed::Wake() {
  {
    std::lock_guard lock(mutex_);
    awake_ = true;
  }
  wake_.notify_all();
}

void ConsoleFeed::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ConsoleFeed::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    awake_ = false;
    lock.unlock();
    const bool watched = pages_->Count() > 0;
    const Clock::time_point begun = Clock::now();
    Look(watched);
    const auto took = Clock::now() - begun;
    lock.lock();
    if (watched) {
      wake_.wait_for(lock, std::clamp<Clock::duration>(3 * took, kPeriod, kRestMax),
                     [this] { return stopping_; });
    } else {
      wake_.wait_for(lock, std::max<Clock::duration>(kIdleRests * took, idle_period_),
                     [this] { return stopping_ || awake_; });
    }
  }
}

void ConsoleFeed::Look(bool watched) {
  ++looks_;
  std::vector<CellReport> reports;
  reports.reserve(cells_.size());
  for (size_t i = 0; i < cells_.size(); ++i) {
    Ask((*calls_)[i].get(), /*jobs=*/i == 0, /*plans=*/watched, &cells_[i]);
    reports.push_back(cells_[i].report);
  }
  const int64_t now_ms = NowMs();
  nlohmann::json view = ViewOf(reports, now_ms);
  if (looks_ > 1) events_.Add(EventsBetween(view_, view), now_ms);
  view_ = view;
  if (!watched) return;
  view["events"] = events_.View();
  view["self"] = self_;
  pages_->Publish(std::move(view), now_ms);
}

void ConsoleFeed::Ask(LeaderCalls* calls, bool jobs, bool plans, Cell* cell) {
  using Stub = v1::Orchestrator::Stub;
  v1::StatusResponse status;
  cell->report.reached =
      FromGrpc(calls->Call(&Stub::Status, v1::StatusRequest(), &status, kTimeout), "orchestrator");
  if (!cell->report.reached.ok()) return;
  cell->report.status = std::move(status);
  v1::ListGroupsResponse groups;
  if (calls->Call(&Stub::ListGroups, v1::ListGroupsRequest(), &groups, kTimeout).ok()) {
    cell->report.groups = std::move(groups);
  }
  v1::ListRequestsRequest ask;
  ask.set_limit(kRequests);
  v1::ListRequestsResponse requests;
  if (calls->Call(&Stub::ListRequests, ask, &requests, kTimeout).ok()) {
    cell->report.requests = std::move(requests);
    if (plans) AskPlans(calls, cell);
  }
  v1::ListJobsResponse listed;
  if (!jobs) return;
  const grpc::Status kept =
      calls->Call(&v1::Jobs::Stub::ListJobs, v1::ListJobsRequest(), &listed, kTimeout);
  cell->report.keeps_jobs = kept.ok();
  if (kept.ok()) cell->report.jobs = std::move(listed);
}

void ConsoleFeed::AskPlans(LeaderCalls* calls, Cell* cell) {
  std::map<std::string, v1::RequestExplanation> explained;
  std::map<std::string, uint64_t> asked;
  std::vector<std::pair<uint64_t, std::string>> open;  // by when they were asked for
  open.reserve(static_cast<size_t>(cell->report.requests.requests_size()));
  for (const v1::RequestExplanation& one : cell->report.requests.requests()) {
    const std::string id = IdOf(one);
    const auto known = cell->report.explained.find(id);
    asked[id] = cell->asked[id];
    if (known == cell->report.explained.end()) {
      open.emplace_back(0, id);
      continue;
    }
    // Once it has ended nothing changes any more.
    if (!known->second.has_ended_s()) open.emplace_back(asked[id], id);
    explained[id] = std::move(known->second);
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (open.size() > kPlansAtOnce) open.resize(kPlansAtOnce);
  for (const auto& [when, id] : open) {
    v1::ExplainRequest ask;
    ask.set_request(id);
    v1::ExplainResponse answer;
    asked[id] = looks_;
    if (!calls->Call(&v1::Orchestrator::Stub::Explain, ask, &answer, kTimeout).ok()) continue;
    if (answer.requests_size() > 0) explained[id] = answer.requests(0);
  }
  cell->report.explained = std::move(explained);
  cell->asked = std::move(asked);
}

}  // namespace skein::services
