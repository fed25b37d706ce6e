// Which function answers which method and path.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/http/message.h"
#include "services/http/responder.h"

namespace skein::services::http {

// Called on a server thread; must not block. Answers through the responder, now or later.
using RequestFn = std::function<void(Request, std::shared_ptr<Responder>)>;
// The same for what can be answered at once.
using PageFn = std::function<Response(const Request&)>;

// A table of routes. Add everything before serving; Serve may then run in any number of threads.
// No route for the path: 404. No route for the method: 405 with Allow. HEAD is served by GET.
// OPTIONS answers 204 with Allow.
class Routes {
 public:
  // `path` is matched whole; one that ends in '*' matches every path with that prefix, and more.
  void Add(std::string method, std::string path, RequestFn fn);
  void AddPage(std::string path, PageFn page);  // GET

  // Method and path of every route; a path as it was added.
  std::vector<std::pair<std::string, std::string>> All() const;

  void Serve(Request request, std::shared_ptr<Responder> responder) const;

  // The value of Allow for `path`, "GET, HEAD, OPTIONS"; "" when there is no such route.
  std::string Allow(const std::string& path) const;
  // `path` as it was added, "/v1/models/*"; "" when there is no such route.
  std::string PatternOf(const std::string& path) const;

 private:
  using Methods = std::map<std::string, RequestFn>;

  struct Found {
    std::string pattern;
    const Methods* methods = nullptr;
  };
  Found Find(const std::string& path) const;

  std::map<std::string, Methods> exact_;
  std::map<std::string, Methods> prefix_;
};

}  // namespace skein::services::http
