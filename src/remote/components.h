// Components: the strongly connected components of a directed graph, in linear time.
#pragma once

#include <cstdint>
#include <vector>

namespace hierlock::remote {

using Vertex = std::uint32_t;

// By vertex: the number of its component. Two vertices have the same number exactly if each reaches the other. A
// component has a higher number than every other component that it reaches.
std::vector<Vertex> components(const std::vector<std::vector<Vertex>>& edges);

}  // namespace hierlock::remote
