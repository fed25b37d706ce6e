// The answer to one generation request: collects the tokens of its choices and writes them to the
// client, whole or as server-sent events. Lives on the shell's loop.
//
// A stream opens with its first event, but only after the cluster has accepted every choice, so
// that a refusal has its own HTTP status. An earlier error is an HTTP error. A later one is an
// error event, after which the stream ends without [DONE]. One failed choice fails the request and
// cancels the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/http/responder.h"
#include "services/openai/request.h"
#include "services/openai/response.h"
#include "services/openai/responses.h"
#include "services/router/access/accounts.h"
#include "services/router/api/identity.h"
#include "services/router/generation/best_of.h"
#include "services/router/generation/choice_text.h"
#include "services/router/generation/prompt.h"
#include "services/router/link/router_shell.h"
#include "services/router/request_times.h"
#include "services/router/router_metrics.h"
#include "services/router/spans/request_spans.h"
#include "services/router/trace_recorder.h"

namespace skein::services {

// All that is known before the first token.
struct AnswerPlan {
  const ServedModel* model = nullptr;
  openai::Head head;
  openai::GenerationOptions options;
  bool echo = false;
  std::shared_ptr<openai::ResponsesWriter> responses;  // set: the answer is one of /v1/responses
  std::vector<PreparedPrompt> prompts;
  // options.best_of for each prompt; consecutive ids.
  std::vector<std::shared_ptr<scheduler::RequestSpec>> specs;
  std::vector<http::Header> headers;  // of the answer
  std::string path;                   // of the HTTP request
  std::string request_id;             // the client's, or one made up
  ClientHints hints;
  std::string traceparent;              // the client's
  std::shared_ptr<RequestSpans> spans;  // null: the request is not traced
  int64_t arrived_us = 0;
  bool offline = false;            // a line of a job: its latencies are nobody's wait
  TraceRecorder* trace = nullptr;  // outlives the answer; null: it is not recorded
  std::shared_ptr<http::ByteBudget::Lease> held;  // of the process's bytes; null: there is no bound
  std::shared_ptr<Charge> charge;                 // the tenant's; null: no accounts are kept
};

class Answer : public RequestListener, public std::enable_shared_from_this<Answer> {
 public:
  // `shell` and `metrics` outlive the answer.
  Answer(AnswerPlan plan, std::shared_ptr<http::Responder> responder, RouterShell* shell,
         RouterMetrics* metrics);

  // Watches the client and submits the choices on the loop. Any thread; false: the inbox is full,
  // and nothing was answered.
  static bool Launch(std::shared_ptr<Answer> answer);

  void OnAccepted(scheduler::RequestId id) override;
  void OnToken(const scheduler::DeliverToken& token) override;
  void OnEnd(const scheduler::End& end) override;
  void OnReject(const scheduler::Reject& reject) override;
  void OnStop() override;

 private:
  struct ChoiceState {
    ChoiceText text;
    bool accepted = false;  // the cluster has taken it up
    bool begun = false;     // its prompt was echoed, its role sent
    bool ended = false;
    bool prompt_ids_sent = false;
    std::string_view finish_reason;  // once ended; empty: it failed
    int64_t first_token_us = 0;
    int64_t last_token_us = 0;
    int64_t output_tokens = 0;  // that have come so far; in the end all that were sampled
    ChoiceScore score;
    RequestTimes times;  // once ended
  };

  void Start();
  void OnGone(http::Gone why);
  void OnDrained();
  size_t IndexOf(scheduler::RequestId id) const;
  const PreparedPrompt& PromptOf(size_t index) const;
  void Begin(size_t index, const std::string& prompt_logprobs);
  void Measure(ChoiceState* choice);
  void Observe(double seconds, prometheus::Histogram* histogram, SeriesExemplars* exemplars) const;
  void CountTokens(const ChoiceState& choice);
  RequestTimes TimesOf(const ChoiceState& choice, const scheduler::RequestTimes& before) const;
  void EmitText(size_t index);
  std::vector<openai::Choice> TakeChoices();
  // The metrics that the end of the answer carries; null: none were asked for.
  const openai::Metrics* MetricsAtEnd() const;
  // The usage that an event carries; null: none.
  const openai::Usage* UsageNow();
  void Accept(size_t index);
  void Emit(std::string event);
  void CountPrompts();
  void Complete();
  // `begun`: instances may have worked for it.
  void Fail(const openai::ApiError& error, int64_t retry_after_us, bool begun);
  void CancelRest();
  // Counts and logs; before the client is told, so that it finds itself counted.
  void Close(int status, std::string_view outcome, const openai::ApiError& error = {});
  void EndSpans(int status, const openai::ApiError& error, const openai::Usage& usage,
                int64_t now_us);
  void CountAnswer(int status, const openai::ApiError& error, int64_t now_us);
  void Charged(int status, std::string_view outcome, const openai::ApiError& error,
               const openai::Usage& usage);
  openai::Usage TotalUsage() const;

  AnswerPlan plan_;
  const std::shared_ptr<http::Responder> responder_;
  RouterShell* const shell_;
  RouterMetrics* const metrics_;
  std::vector<ChoiceState> choices_;
  openai::Usage usage_now_;
  openai::Metrics last_metrics_;  // of the choice that ended last
  size_t open_ = 0;               // choices that have not ended
  size_t uncounted_ = 0;          // choices whose end is not in the metrics yet
  size_t unaccepted_ = 0;         // choices that may still be refused
  std::string held_;              // events until the stream opens
  bool headed_ = false;           // the stream's HTTP head is out
  bool closed_ = false;           // nothing more is written
  bool paused_ = false;
  int64_t first_token_us_ = 0;
};

}  // namespace skein::services
