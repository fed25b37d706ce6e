// The OpenAI-compatible API over HTTP. Requests are parsed and tokenised on threads of its own, so
// that neither connections nor the shell's loop wait for a long prompt. A small request is handled
// on its connection's thread: waking another one would take longer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/http/routes.h"
#include "services/openai/request.h"
#include "services/openai/response.h"
#include "services/router/access/accounts.h"
#include "services/router/generation/answer.h"
#include "services/router/generation/generation.h"
#include "services/router/link/router_shell.h"
#include "services/router/model/model.h"
#include "services/router/model/model_watch.h"
#include "services/router/router_metrics.h"
#include "services/shell/loop.h"

namespace skein::services {

struct RouterApiOptions {
  int64_t max_prompt_tokens = 0;  // 0: what the model holds
  int64_t max_choices = 128;
  int64_t max_streams = 2048;         // as the shell's
  int64_t max_queued = 1024;          // as the shell's
  int64_t default_max_tokens = 2048;  // of a chat, where neither client nor model says; 0: no bound
  // From a request's arrival to the end of its answer, tokenising included. As the shell's.
  int64_t request_deadline_us = 600'000'000;
  bool strict = false;             // unknown parameters are errors
  int threads = 2;                 // that parse and tokenise bodies above kSmallBodyBytes
  size_t queue_max = 256;          // requests waiting for a thread; more: 429
  TraceRecorder* trace = nullptr;  // outlives the API and its shell; null: nothing is recorded
  const RequestTracing* tracing = nullptr;  // likewise; null: nothing is traced
  Accounts* accounts = nullptr;             // likewise; null: no limits, and no accounts are kept
};

class RouterApi {
 public:
  // All outlive the API.
  RouterApi(const RouterApiOptions& options, const Models* models, RouterShell* shell,
            const ModelWatch* watch, RouterMetrics* metrics);
  ~RouterApi();

  // A body that takes well below a millisecond to parse and tokenise.
  static constexpr size_t kSmallBodyBytes = 4096;

  void AddRoutes(http::Routes* routes);

  // The priority of an offline job's line (RequestSpec::priority): below every one that a client
  // may name, so that whatever waits for a place goes before lines.
  static constexpr int32_t kLinePriority = INT32_MIN;
  // The longest deadline of a line. The shell's own limit (RouterConfig) has to be as long.
  static constexpr int64_t kLineDeadlineUs = int64_t{24} * 3600 * 1'000'000;
  // A line of an offline job: answered as a POST of its body to its path is, but whole, and with
  // kLinePriority, whatever the body says. `within_us`: its deadline, if that is not longer. 429
  // where requests wait for --max-streams already, whose queue knows no priorities. Parses and
  // tokenises on the calling thread. The latencies of lines are not counted as those of clients
  // are.
  void RunLine(const http::Request& request, const std::shared_ptr<http::Responder>& responder,
               int64_t within_us);

  // New requests get 503 from now on.
  void BeginDrain() { draining_.store(true); }
  // The same as long as an operator orders it.
  void OrderDrain(bool drain) { drain_ordered_.store(drain); }
  bool draining() const { return draining_.load() || drain_ordered_.load(); }

 private:
  using ResponderPtr = std::shared_ptr<http::Responder>;
  struct Arrival {
    int64_t us = 0;
    int64_t deadline_us = 0;                        // so long after it
    bool offline = false;                           // a line of a job
    std::shared_ptr<Charge> charge = nullptr;       // null: no accounts are kept
    std::shared_ptr<RequestSpans> spans = nullptr;  // null: it is not traced
  };
  using WorkFn = void (RouterApi::*)(const http::Request&, const ResponderPtr&, const Arrival&);

  void AddPost(const char* path, WorkFn work, http::Routes* routes);
  void Dispatch(WorkFn work, http::Request request, ResponderPtr responder);
  void Complete(const http::Request& request, const ResponderPtr& responder,
                const Arrival& arrival);
  void Chat(const http::Request& request, const ResponderPtr& responder, const Arrival& arrival);
  void Respond(const http::Request& request, const ResponderPtr& responder, const Arrival& arrival);
  void Tokenize(const http::Request& request, const ResponderPtr& responder,
                const Arrival& arrival);
  void Detokenize(const http::Request& request, const ResponderPtr& responder,
                  const Arrival& arrival);
  // Those that can answer and that the caller may use; 503 when none can answer.
  http::Response ListModels(const http::Request& request) const;
  http::Response ShowModel(const http::Request& request) const;

  // A model that the caller may not use is for it one that does not exist.
  openai::MaybeError FindModel(const http::Request& request, const std::string& name, bool required,
                               const ServedModel** model) const;
  openai::ParseLimits Limits() const;
  openai::MaybeError CheckChoices(const AnswerPlan& plan, size_t prompts) const;
  LengthLimits LimitsOf(const ServedModel& model) const;
  openai::MaybeError PrepareInput(const ServedModel& model, const openai::ChatInput& input,
                                  PreparedPrompt* out) const;
  // Of each prompt: that its tokens exist, and how long its answers may get.
  openai::MaybeError CheckPrompts(openai::Kind kind, const std::vector<PreparedPrompt>& prompts,
                                  const AnswerPlan& plan, std::vector<int64_t>* max_tokens) const;
  openai::MaybeError Plan(openai::Kind kind, std::vector<PreparedPrompt> prompts,
                          AnswerPlan* plan) const;
  void Launch(const http::Request& request, const ResponderPtr& responder, const Arrival& arrival,
              AnswerPlan plan);
  // Begins the request's spans, if it is traced, and makes *responder end them.
  void Trace(const http::Request& request, ResponderPtr* responder, Arrival* arrival) const;
  void SendJson(const http::Request& request, const ResponderPtr& responder, const Arrival& arrival,
                std::vector<http::Header> headers, std::string body);
  // Takes what the request may use out of its tenant's tokens, and adds what is left to the
  // headers. False: it was refused.
  bool MayReserve(const ResponderPtr& responder, const Arrival& arrival, AnswerPlan* plan) const;
  static void Refuse(const Arrival& arrival, const ResponderPtr& responder,
                     const openai::ApiError& error, std::vector<http::Header> headers = {},
                     int64_t retry_after_us = 0);
  // Until the deadline; not positive: it has passed.
  static int64_t TimeLeftUs(const Arrival& arrival) {
    return arrival.deadline_us - (MonotonicUs() - arrival.us);
  }
  openai::ApiError NoSuchModel(const http::Request& request, const std::string& name) const;
  int64_t MaxPositions(const ServedModel& model) const;
  openai::ModelCard CardOf(const ServedModel& model) const;

  const RouterApiOptions options_;
  const Models* const models_;
  RouterShell* const shell_;
  const ModelWatch* const watch_;
  RouterMetrics* const metrics_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> drain_ordered_{false};
  std::atomic<uint64_t> next_loop_{0};
  std::vector<std::unique_ptr<Loop>> loops_;  // last: their threads use the above
};

}  // namespace skein::services
