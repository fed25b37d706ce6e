// The console: a page at the router's admin port that shows the cluster as it is, and what happens
// in it (docs/console.md).
//
//   GET  /console/                      the page; /console leads there
//   GET  /console/FILE                  its scripts and styles
//   GET  /console/stream                server-sent events: the state, then what changes in it
//   GET  /console/explain?request=ID    all that is known of one request, as JSON; &cell=NUMBER
//                                       asks only that cell
//   POST /console/order                 an operator's order, with the operators' token
//   POST /console/v1/...                a prompt, as at the router's API
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "services/console/console_feed.h"
#include "services/console/console_pages.h"
#include "services/http/routes.h"
#include "services/orchestrator_link/leader_calls.h"
#include "services/shell/loop.h"

namespace skein::services {

struct ConsoleOptions {
  std::vector<std::string> cells;   // each as CellOrchestrators takes it; at least one
  std::vector<std::string> models;  // what the router serves
  std::vector<std::string> hosts;   // names of this router, see IsOwnHost
  std::string token_file;           // of operators; "": the console is read-only
  bool needs_api_key = false;       // prompts do
  std::string router;               // its id, as in the view's routers; may be empty
  // Between two looks at what has happened, while no page is open.
  std::chrono::milliseconds idle_period{5'000};
};

class Console {
 public:
  // `channels` outlives it. `serve_api` answers what clients ask; called on the server's threads,
  // until Stop.
  Console(ConsoleOptions options, Channels* channels, http::RequestFn serve_api);
  ~Console();  // Stop

  // Any thread, also after Stop.
  void Serve(http::Request request, std::shared_ptr<http::Responder> responder);

  // Ends the pages' streams and the calls under way. Idempotent.
  void Stop();

 private:
  using ResponderPtr = std::shared_ptr<http::Responder>;

  void AddRoutes();
  void AddFiles();
  void Stream(const http::Request& request, const ResponderPtr& responder);
  void Explain(const http::Request& request, const ResponderPtr& responder);
  void Order(const http::Request& request, const ResponderPtr& responder);
  void Prompt(http::Request request, const ResponderPtr& responder);

  const ConsoleOptions options_;
  const http::RequestFn serve_api_;
  std::vector<std::unique_ptr<LeaderCalls>> cells_;
  ConsolePages pages_;
  http::Routes routes_;
  Loop questions_;  // its thread asks for explanations
  Loop orders_;     // its thread gives orders, of which one may take as long as a switch
  ConsoleFeed feed_;
};

// What the admin server asks for: the paths of the console, passed to `serve`.
void AddConsoleRoutes(const http::RequestFn& serve, http::Routes* routes);

}  // namespace skein::services
