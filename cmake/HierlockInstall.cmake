# Headers, library, tool, and what find_package and pkg-config need to find them. Nothing in the installed tree names the
# prefix, so that it can be moved. Each file belongs to an install component, of which cpack makes a package:
#
#   dev               headers, the library, rows
#   tool              the program, man pages, completions, documents
#   mysql valkey lab  what needs client libraries: the tool's program for it, and the library of the component
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hierlock")
set(own_packages mysql valkey lab)

install(TARGETS hierlock EXPORT hierlockTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT dev
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT hierlockTargets NAMESPACE hierlock:: DESTINATION "${package_dir}" COMPONENT dev)

# Each component: a library, and the file that hierlockConfig.cmake includes when it is asked for.
get_property(components GLOBAL PROPERTY HIERLOCK_COMPONENTS)
foreach(component IN LISTS components)
  set(package_of_${component} dev)
  if(component IN_LIST own_packages)
    set(package_of_${component} ${component})
  endif()
  install(TARGETS hierlock_component_${component} EXPORT hierlock-${component}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT ${package_of_${component}}
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT ${package_of_${component}})
  install(EXPORT hierlock-${component} NAMESPACE hierlock:: DESTINATION "${package_dir}"
    COMPONENT ${package_of_${component}})
endforeach()

configure_package_config_file(cmake/hierlockConfig.cmake.in "${PROJECT_BINARY_DIR}/package/hierlockConfig.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/hierlockConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/package/hierlockConfig.cmake" "${PROJECT_BINARY_DIR}/package/hierlockConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT dev)

file(RELATIVE_PATH HIERLOCK_PC_TO_PREFIX
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}/.")
string(REGEX REPLACE "/\\.?$" "" HIERLOCK_PC_TO_PREFIX "${HIERLOCK_PC_TO_PREFIX}")
configure_file(cmake/hierlock.pc.in "${PROJECT_BINARY_DIR}/package/hierlock.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/package/hierlock.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
foreach(component IN LISTS components)
  set(HIERLOCK_PC_NAME ${component})
  get_property(libraries GLOBAL PROPERTY HIERLOCK_COMPONENT_LIBS_${component})
  list(TRANSFORM libraries PREPEND -l)
  list(JOIN libraries " " HIERLOCK_PC_LIBS)
  configure_file(cmake/hierlock-component.pc.in "${PROJECT_BINARY_DIR}/package/hierlock-${component}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/hierlock-${component}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
    COMPONENT ${package_of_${component}})
endforeach()

if(TARGET hierlock_tool_cli)
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
    set_target_properties(hierlock_tool_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
  endif()
  install(TARGETS hierlock_tool_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tool)
  foreach(part IN LISTS own_packages)
    if(TARGET hierlock_tool_${part})
      if(BUILD_SHARED_LIBS)
        set_target_properties(hierlock_tool_${part} PROPERTIES INSTALL_RPATH "$ORIGIN/../${to_lib}")
      endif()
      install(TARGETS hierlock_tool_${part} RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/hierlock" COMPONENT ${part})
    endif()
  endforeach()
  if(TARGET hierlock_tool_lab)
    install(DIRECTORY scenarios DESTINATION "${CMAKE_INSTALL_DATADIR}/hierlock" COMPONENT lab
      FILES_MATCHING PATTERN "*.scenario")
  endif()
  if(TARGET hierlock_pages)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/" DESTINATION "${CMAKE_INSTALL_DATADIR}" COMPONENT tool
      PATTERN "*.stamp" EXCLUDE)
  endif()
endif()
# As they lie here: they name each other, and messages name them, as docs/mysql.md and the like.
install(FILES LICENSE README.md CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT tool)
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT tool FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
install(DIRECTORY packaging/systemd DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT tool)
