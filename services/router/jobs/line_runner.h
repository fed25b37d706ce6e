// LineRunner: computes lines of offline jobs that the leading orchestrator gives to this router.
//
// One stream to the orchestrator (ComputeLines in proto/jobs.proto) brings orders. Each line runs
// as a client's request does, and its result is sent until the orchestrator says that it is kept. A
// failure that is the cluster's and not the line's (429, 503, 504) gives the line back, after a
// pause that doubles with each such failure in a row: meanwhile the line takes up room, so a
// cluster without room for lines is asked seldom. A line whose owner is not in the file of tenants
// is given back, too: the tenant may be back, or be on its way to this router; the orchestrator
// passes its job over meanwhile. When the stream breaks, lines go on; the next one names them.
//
//   ordered ──▶ running ──▶ answered ──kept──▶ gone
//                  └──cluster's failure──▶ pausing ──returned──▶ gone
//
// A router that drains opens a stream anew, with no room: it gets no line, and finishes those that
// it has.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/jobs.grpc.pb.h"
#include "services/http/byte_budget.h"
#include "services/log/repeat_limit.h"
#include "services/metrics/metrics.h"
#include "services/router/access/caller.h"
#include "services/router/jobs/jobs_client.h"
#include "services/router/jobs/line_responder.h"
#include "services/rpc/bidi_stream.h"

namespace skein::services {

struct LineRunnerOptions {
  uint64_t router = 0;      // this process's number; another one after each start
  int64_t lines_max = 256;  // held at a time; 0: this router computes no lines
  int64_t first_pause_us = 500'000, pause_max_us = 30'000'000;  // before a line is given back
  int64_t reopen_us = 500'000, reopen_max_us = 10'000'000;      // before the next stream
  std::shared_ptr<http::ByteBudget> bodies = nullptr;           // of requests; null: no bound
  // What the files of keys and tenants say of a job's owner; an error if its lines may not be
  // computed now. Any thread; empty: there are no such files.
  std::function<absl::StatusOr<std::shared_ptr<const Caller>>(const std::string& owner)> caller =
      nullptr;
};

class LineRunner {
 public:
  // Answers `request` through the responder, in at most `within_us`; on the runner's own thread.
  using Answer = std::function<void(const http::Request& request,
                                    const std::shared_ptr<http::Responder>&, int64_t within_us)>;

  // `jobs` and `metrics` outlive it; but `jobs` has to be stopped before it is destroyed.
  LineRunner(LineRunnerOptions options, JobsClient* jobs, Answer answer, Metrics* metrics);
  ~LineRunner();  // Stop

  // Opens the stream. Any thread, once.
  void Start();
  // Whether it takes lines. Any thread.
  void SetDraining(bool draining);
  // Lines that are held here: running, pausing, or not kept yet. Any thread but the loop of `jobs`.
  int64_t Held();
  // Gives back what still runs, and waits until that is sent, for at most `wait`. Nothing is taken
  // from then on. The stream stays open, so that what was sent is read. Not from the loop of
  // `jobs`.
  void Leave(std::chrono::milliseconds wait);
  // After it nothing runs here. Not from the loop of `jobs`; idempotent.
  void Stop();

 private:
  using Stream = ClientStream<v1::RouterLines, v1::OrchestratorLines>;
  using Key = std::pair<std::string, uint64_t>;  // job, line
  // The way to the loop for those who answer lines: they may outlive it.
  struct Gate {
    std::mutex mutex;
    Loop* loop = nullptr;  // null: closed. Guarded by mutex
    void Post(Loop::Task task);
  };
  struct Line {
    uint64_t number = 0;  // no two lines that are ever held have the same
    std::string request_id;
    std::shared_ptr<LineResponder> responder;  // null: it has been answered
    v1::RouterLines result;                    // empty: there is none yet
  };

  // On the loop of `jobs`.
  void Open();
  void OpenAt(const std::string& endpoint);
  void Reopen();
  void OpenLater();
  void Take(const v1::OrchestratorLines& message);
  void TakeOrder(const v1::OrchestratorLines::Order& order);
  void GiveBackForOwner(const Key& key, const absl::Status& why);
  void TakeAnswer(const Key& key, uint64_t number, http::Response response);
  void StreamEnded(const std::string& endpoint, const absl::Status& status);
  void Return(const Key& key, uint64_t number, const std::string& why);
  void Forget(const Key& key);
  void StayAlive(uint64_t stream);
  void Send(v1::RouterLines message);
  void GiveAllBack();
  prometheus::Counter& CounterOf(const char* outcome);
  void ShowRunning();

  const LineRunnerOptions options_;
  JobsClient* const jobs_;
  const Answer answer_;
  Metrics* const metrics_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  Loop work_;  // parses and tokenises, so that online requests do not wait for lines
  // Below: on the loop of `jobs`.
  std::map<Key, Line> lines_;
  uint64_t next_number_ = 1;
  int64_t returns_in_row_ = 0, opens_in_row_ = 0;
  std::shared_ptr<Stream> stream_;  // null: there is none
  uint64_t streams_ = 0;            // grows with each that is opened or closed
  int64_t lease_us_ = 0;
  RepeatLimit unreached_, without_owner_;
  bool draining_ = false, left_ = false;
  std::function<void()> written_;  // called when all is written; null: nobody waits
};

}  // namespace skein::services
