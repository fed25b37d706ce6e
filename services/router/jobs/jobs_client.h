// JobsClient: calls of the service Jobs at the orchestrator that leads. A call that reaches a
// standby, or nobody, is made again at the others, and after a pause, until kRetryForUs has passed:
// as long as an election takes. The ids in the requests make a repeated call the same call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/jobs.grpc.pb.h"
#include "services/orchestrator_link/cell_orchestrators.h"
#include "services/rpc/rpc.h"
#include "services/shell/loop.h"

namespace skein::services {

struct JobsClientOptions {
  std::string orchestrators;  // of one cell, as CellOrchestrators takes them
  int64_t retry_for_us = 15'000'000;
  int64_t pause_us = 200'000;    // between two rounds of calls
  int64_t call_us = 10'000'000;  // of one unary call
};

class JobsClient {
 public:
  using Task = std::function<void()>;
  using Stub = v1::Jobs::Stub;
  using Ended = std::function<void(absl::Status)>;
  // One try: calls `ended` once, on any thread.
  using Attempt = std::function<void(std::shared_ptr<Stub>, Ended ended)>;

  // `channels` outlives it.
  JobsClient(JobsClientOptions options, Channels* channels);
  ~JobsClient();  // Stop

  // Cancels all calls and waits for gRPC to let go of them: what is not done yet ends with
  // UNAVAILABLE, and timers are due at once. Not from the loop; idempotent.
  void Stop();

  // Tries until an attempt ends with something that is not a matter of the orchestrator that was
  // called. UNAVAILABLE: the time for it has passed. Any thread; `attempt` and `done` run on the
  // loop.
  void Run(Attempt attempt, Ended done);

  // A unary call; `done` runs on the loop. Any thread.
  template <typename Request, typename Response>
  void Call(UnaryMethod<v1::Jobs, Request, Response> method, Request request,
            std::type_identity_t<std::function<void(absl::StatusOr<Response>)>> done) {
    auto answer = std::make_shared<Response>();
    Run(
        [this, method, request = std::move(request), answer](std::shared_ptr<Stub> stub,
                                                             Ended ended) {
          CallUnary<Response>(
              kPeer, &calls_, request, options_.call_us,
              [stub, method](auto* context, auto* asked, auto* response, auto end) {
                (stub->async()->*method)(context, asked, response, std::move(end));
              },
              [answer, ended = std::move(ended)](const absl::Status& status,
                                                 const Response& response) {
                *answer = response;
                ended(status);
              });
        },
        [answer, done = std::move(done)](const absl::Status& status) {
          status.ok() ? done(std::move(*answer)) : done(status);
        });
  }

  // ---- for owners of streams ----
  static constexpr char kPeer[] = "orchestrator";
  Loop& loop() { return loop_; }
  CallTracker* calls() { return &calls_; }
  // On the loop.
  void After(int64_t delay_us, Task task);
  // The orchestrator to call, and what became of it; as CellOrchestrators has them. True: another
  // one might do at once.
  std::string Current() const { return orchestrators_.Current(); }
  void BeginRound() { orchestrators_.BeginRound(); }
  std::shared_ptr<Stub> StubOf(const std::string& endpoint);
  bool Failed(const std::string& endpoint, const absl::Status& status);

 private:
  struct Work;

  void Try(const std::shared_ptr<Work>& work);
  void Tried(const std::shared_ptr<Work>& work, const std::string& endpoint,
             const absl::Status& status);
  void RunDue();

  const JobsClientOptions options_;
  Channels* const channels_;
  CellOrchestrators orchestrators_;
  CallTracker calls_;
  std::atomic<bool> stopping_{false};
  std::multimap<int64_t, Task> timers_;  // on the loop; by when they are due
  Loop loop_;                            // last: its thread uses the above
};

}  // namespace skein::services
